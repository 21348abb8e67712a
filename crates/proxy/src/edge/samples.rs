//! Requests that servers were asked lately, to warm another one up with.

/// Number of requests that are kept.
const KEPT: usize = 64;
/// One request of this many is kept, so that copying costs little.
const ONE_OF: usize = 16;

/// Requests that are safe to repeat.
#[derive(Debug, Default)]
pub(super) struct Samples {
    requests: Vec<Vec<u8>>,
    seen: usize,
}

impl Samples {
    /// Notes an answered request that is safe to repeat. Returns whether it is the first one.
    pub(super) fn note(&mut self, request: &[u8]) -> bool {
        self.seen += 1;
        match self.requests.len() {
            len if len < KEPT => self.requests.push(request.to_vec()),
            _ if self.seen.is_multiple_of(ONE_OF) => {
                let kept = &mut self.requests[self.seen / ONE_OF % KEPT];
                kept.clear();
                kept.extend_from_slice(request);
            }
            _ => {}
        }
        self.seen == 1
    }

    /// Returns one of them, if there is any.
    pub(super) fn get(&self, number: usize) -> Option<Vec<u8>> {
        let len = self.requests.len();
        (len > 0).then(|| self.requests[number % len].clone())
    }
}
