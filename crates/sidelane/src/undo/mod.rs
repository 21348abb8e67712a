//! Undoing: what was changed on the machine is put right, whatever ends the agent.

pub mod affinity;
pub mod guardian;
