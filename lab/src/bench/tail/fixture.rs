//! The context that all parts of the tail bench share.

use anyhow::Result;

use super::options::TailOptions;
use crate::bench::workload;
use crate::bench::workload::{RealServer, RealServerKind};
use crate::experiment::comparison::Report;
use crate::experiment::place::ExperimentCpus;
use crate::note::LabNote;
use crate::programs::LabBinary;

/// CPUs and options of a part's measurement.
pub(super) struct TailFixture<'a> {
    pub(super) lab: LabBinary,
    /// CPUs of the lane pair: services run on the request lane, clients and disturbances on its sibling.
    pub(super) place: ExperimentCpus,
    pub(super) options: &'a TailOptions,
}

impl TailFixture<'_> {
    /// Starts Redis on the request lane; returns `None` and adds a note if Redis is not installed.
    pub(super) fn start_redis(&self, report: &mut Report) -> Result<Option<(RealServer, workload::ServiceCpus)>> {
        if !RealServerKind::Redis.is_installed() {
            report.notes.push(LabNote::NotInstalled { program: RealServerKind::Redis.program() }.to_string());
            return Ok(None);
        }
        let place = workload::ServiceCpus { server_cpu: self.place.request, client_cpu: self.place.client };
        Ok(Some((RealServer::start(RealServerKind::Redis, place)?, place)))
    }
}
