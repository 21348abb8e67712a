//! The cost of an idle agent, whose services get no requests.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::Result;

use super::environment::Environment;
use super::plan::{GuardVariant, Plan};
use crate::experiment::containers::Work;

/// Wait before the measurement: an agent loads its kernel programs and observes the machine in a third of a second.
const START: Duration = Duration::from_secs(1);

/// Cost of an idle agent.
#[derive(Clone, Copy, Debug)]
pub(super) struct IdleAgentFigures {
    /// CPU time of the agent, in percent of one CPU.
    pub(super) cpu_percent: f64,
    /// Peak memory of the agent, in MiB.
    pub(super) memory_mib: Option<f64>,
}

/// Measures an agent with the policy Holmes, services without requests, and one sleeping container.
pub(super) fn measure_idle_agent(environment: &Environment, plan: &Plan) -> Result<IdleAgentFigures> {
    let mut containers = environment.create_containers()?;
    containers.start("waits", &Work::Wait, environment.work_files())?;
    let agent = environment.start_agent(plan, GuardVariant::Holmes, &containers)?;
    thread::sleep(START);
    let (began, before_ns) = (Instant::now(), agent.cpu_ns()?);
    thread::sleep(plan.idle.max(Duration::from_millis(1)));
    let used_ns = agent.cpu_ns()? - before_ns;
    let idle = IdleAgentFigures {
        cpu_percent: 100.0 * used_ns as f64 / began.elapsed().as_nanos() as f64,
        memory_mib: agent.memory_mib(),
    };
    agent.end()?;
    containers.finish()?;
    Ok(idle)
}
