//! Notes about the observation of requests.

use sidelane_diagnostics::diagnostics;

diagnostics! {
    /// Note of the requests of a service.
    pub enum RequestNote in Requests;
    degraded {
        OtherSockets { service: String = "comm:caddy".to_owned(), sockets: String = "UDP port 443".to_owned() } =>
            "{service} may get requests at {sockets}, too, which are not seen: figures and objective are of its TCP \
             requests alone",
            "let the service emit its requests (runtime/c/sidelane.h)";
        RequestsJoined { percent: u64 = 12 } =>
            "{percent} % of the requests came in several pieces before they were answered: each counts as one, but may \
             be several on one connection (pipelining, HTTP/2, gRPC)",
            "let the service emit its requests (runtime/c/sidelane.h)";
        HandshakesPossible { connections: u64 = 120, percent: u64 = 12 } =>
            "{connections} connections began: if they use TLS, HTTP/2 or WebSocket, their handshakes are up to \
             {percent} % of the requests",
            "let the service emit its requests (runtime/c/sidelane.h), or its clients keep their connections";
        CountedAtSockets =>
            "requests are counted at sockets, as data that came together and got a response: requests that a client \
             sends together (pipelining, HTTP/2, gRPC) count as one, and a handshake or `100 Continue` counts, too",
            "if clients do that, let the service emit its requests (runtime/c/sidelane.h)";
        AnswersStream { percent: u64 = 12 } =>
            "{percent} % of the responses went on for over 100 ms after their first part: a stream counts as one \
             request",
            "let the service emit its requests (runtime/c/sidelane.h)";
    }
    told {}
}
