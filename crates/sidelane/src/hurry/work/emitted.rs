//! What threads work on, by the service's own word (`runtime/c/sidelane.h`).

use std::collections::BTreeSet;

use sidelane_signal::EmitKind;

use super::event::{LostWork, Work};
use crate::request::emitted::Emitters;

/// A service that emits its requests.
pub struct Emissions {
    emitters: Emitters,
    lost: u64,
}

impl Emissions {
    /// Of these processes.
    pub fn new(emitters: Emitters) -> Self {
        Self { emitters, lost: 0 }
    }

    /// Tells what was emitted since the last call.
    pub fn hear(&mut self, tell: &mut dyn FnMut(Work)) {
        for (_, event) in self.emitters.fetch_events() {
            match event.kind {
                EmitKind::Received => {}
                EmitKind::Started => tell(Work::Working { tid: event.tid, since_ns: event.at_ns }),
                EmitKind::Finished => tell(Work::Served { tid: event.tid, since_ns: None, at_ns: event.at_ns }),
            }
        }
    }

    /// The service consists of these processes now.
    pub fn look_again(&mut self, pids: &BTreeSet<u32>) {
        self.emitters.look_again(pids);
    }

    /// What was lost.
    pub fn lost(&mut self) -> LostWork {
        self.lost += self.emitters.take_lost();
        LostWork { records: self.lost, ..LostWork::default() }
    }
}
