//! Notes about the observation of requests.

use sidelane_diagnostics::diagnostics;

diagnostics! {
    /// Note about requests of a service.
    pub enum RequestNote in Requests;
    degraded {
        OtherSockets { service: String = "comm:caddy".to_owned(), sockets: String = "UDP port 443".to_owned() } =>
            "{service} may take requests at {sockets}, too, which are not seen: what is said of its requests, and an \
             objective, is of TCP alone",
            "let it emit its requests (runtime/c/sidelane.h)";
        RequestsJoined { percent: u64 = 12 } =>
            "{percent} % of the requests came in several pieces before they were answered: parts of one, or several on \
             one connection (pipelining, HTTP/2, gRPC); counts and times are of what looks like one",
            "let the service emit its requests (runtime/c/sidelane.h)";
        HandshakesPossible { connections: u64 = 120, percent: u64 = 12 } =>
            "{connections} connections began: if they speak TLS, HTTP/2 or WebSocket, their handshakes are up to \
             {percent} % of the requests",
            "let the service emit its requests (runtime/c/sidelane.h), or its clients keep their connections";
        CountedAtSockets =>
            "a request is here what came in at once and was answered: several that a client writes in one go (pipelining, \
             HTTP/2, gRPC) are one, and a handshake or `100 Continue` is one, too",
            "where clients do so, let the service emit its requests (runtime/c/sidelane.h)";
        AnswersStream { percent: u64 = 12 } =>
            "{percent} % of the answers went on for over 100 ms after their first part: streams count as one request",
            "let the service emit its requests (runtime/c/sidelane.h)";
    }
    told {}
}
