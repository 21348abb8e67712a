//! Samples of recent requests, which can be sent to another server to warm it up. All threads of a proxy share them.

use std::sync::{Mutex, PoisonError};

use tokio::sync::Notify;

/// Maximum number of sampled requests.
const KEPT: usize = 64;
/// Sampling interval: after the first [`KEPT`] requests of a thread, one request of this number is copied, so that
/// copying costs little.
const ONE_OF: usize = 16;

/// Sampled requests that are safe to repeat.
#[derive(Debug, Default)]
pub(super) struct Samples {
    requests: Mutex<Vec<Vec<u8>>>,
    /// Notification of the first sample.
    first: Notify,
}

impl Samples {
    /// Samples an answered request that is safe to repeat. `number` counts these requests of the calling thread.
    pub(super) fn sample_request(&self, number: usize, request: &[u8]) {
        if number >= KEPT && !number.is_multiple_of(ONE_OF) {
            return;
        }
        // Leave the request out if another thread has the lock: a client waits for this thread.
        let Ok(mut requests) = self.requests.try_lock() else { return };
        if requests.len() < KEPT {
            requests.push(request.to_vec());
            self.first.notify_waiters();
            return;
        }
        let kept = &mut requests[number / ONE_OF % KEPT];
        kept.clear();
        kept.extend_from_slice(request);
    }

    /// Returns a sampled request. If there is none, waits for the first one. A `number` beyond the last sample starts
    /// again at the first one.
    pub(super) async fn get(&self, number: usize) -> Vec<u8> {
        loop {
            let first = self.first.notified();
            if let Some(request) = self.find(number) {
                return request;
            }
            first.await;
        }
    }

    fn find(&self, number: usize) -> Option<Vec<u8>> {
        let requests = self.requests.lock().unwrap_or_else(PoisonError::into_inner);
        (!requests.is_empty()).then(|| requests[number % requests.len()].clone())
    }
}
