//! Notes of a trace.

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
            "{program} is a program of {runtime}: the way of a request through its {tasks} is not seen; what a request waits \
             for there is told as a wait inside the service, and no thread has it",
            "look at the program's own tracer or profiler for such waits";
        PausesUnseen { pid: u32 = 1234, error: String = "process 1234 cannot be searched".to_owned() } =>
            "pauses of the runtime are not told: {error}",
            "see sidelane list pid:{pid}";
        PausesMissed { pauses: u64 = 3 } =>
            "{pauses} pauses of the runtime were followed by another one so soon that they were not seen: their time is told \
             as something else",
            "leave sidelane more time on the CPUs";
        ServiceNotFollowed { error: String = "the table of listeners is full".to_owned() } =>
            "the service was not looked after to the end, so requests at ports that it opened later are not seen: {error}",
            "start the trace again";
        BreakNotRecorded { late: Duration = Duration::from_secs(3) } =>
            "the request that broke the objective arrived {late:.1?} before this recording begins, so its way is not in it",
            "record less with --light (light = true in the agent's file), or keep more (keep)";
    }
    told {}
}
