//! Notes to the user about a trace, such as degraded data.

use std::time::Duration;

use sidelane_diagnostics::diagnostics;

diagnostics! {
    /// Note of a trace.
    pub enum TraceNote in Trace;
    degraded {
        TasksUnseen {
            program: String = "server".to_owned(),
            runtime: &'static str = "Go",
            tasks: &'static str = "goroutines"
        } =>
            "{program} runs {runtime}: the path of a request through its {tasks} is not seen; such waits are shown as \
             waits inside the service, without a thread",
            "use the program's own tracer or profiler for such waits";
        PausesUnseen { pid: u32 = 1234, error: String = "process 1234 cannot be searched".to_owned() } =>
            "pauses of the JVM (process {pid}) are not recorded, so their time counts for other causes: {error}",
            "see the reason with `sidelane list pid:{pid}`";
        PausesMissed { pauses: u64 = 3 } =>
            "{pauses} pauses of a JVM were not recorded, because the next pause followed at once: their time counts \
             for other causes",
            "leave a CPU free for sidelane";
        ServiceNotFollowed { error: String = "the table of listeners is full".to_owned() } =>
            "the service was not followed to the end, so requests at ports that it opened later are not seen: {error}",
            "start the trace again";
        BreakNotRecorded { late: Duration = Duration::from_secs(3) } =>
            "the request that broke the objective arrived {late:.1?} before the begin of this recording, so the \
             recording does not show it",
            "record less with --light (light = true in [trace]), or keep more seconds (keep in [trace])";
    }
    told {}
}
