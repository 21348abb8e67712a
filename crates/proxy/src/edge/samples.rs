//! Samples of recent requests, which can be sent to another server to warm it up.

/// Maximum number of sampled requests.
const KEPT: usize = 64;
/// Sampling interval: after the first [`KEPT`] requests, one request of this number is copied, so that copying costs
/// little.
const ONE_OF: usize = 16;

/// Sampled requests that are safe to repeat.
#[derive(Debug, Default)]
pub(super) struct Samples {
    requests: Vec<Vec<u8>>,
    seen: usize,
}

impl Samples {
    /// Samples an answered request that is safe to repeat. Returns whether it is the first one.
    pub(super) fn sample_request(&mut self, request: &[u8]) -> bool {
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

    /// Returns a sampled request; `None` without samples. A `number` beyond the last sample starts again at the first
    /// one.
    pub(super) fn get(&self, number: usize) -> Option<Vec<u8>> {
        let len = self.requests.len();
        (len > 0).then(|| self.requests[number % len].clone())
    }
}
