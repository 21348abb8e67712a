//! Requests that servers were asked lately, to warm another one up with.

/// How many are kept.
const KEPT: usize = 64;
/// One of so many is kept, so that keeping costs nothing.
const ONE_OF: usize = 16;

/// Requests that are safe to repeat.
#[derive(Debug, Default)]
pub(super) struct Samples {
    requests: Vec<Vec<u8>>,
    seen: usize,
}

impl Samples {
    /// A request that is safe to repeat was answered. Whether it is the first one.
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

    /// One of them; nothing if there is none.
    pub(super) fn get(&self, number: usize) -> Option<Vec<u8>> {
        let len = self.requests.len();
        (len > 0).then(|| self.requests[number % len].clone())
    }
}
