//! Scene of an agent that lends a lane: a service on the request lane, and batch on the batch lane.

use sidelane_host::cgroup::Hierarchy;

use crate::common::lanes::REQUEST_LANE;
use crate::common::process::allowed_cpus;
use crate::common::{Footprint, FreezableGroup, Run, SPIN, ServiceOnCommand, Turn, Words, lock_lanes, wait_until};
use crate::daemon::{Daemon, File};
use crate::groups::{Container, Place, Tree};
use crate::service::Program;

/// Settings of a [`Scene`].
pub struct Setting<'a> {
    /// Additional lines of the agent's file.
    pub lines: &'a str,
    /// Shell script that batch runs.
    pub script: &'a str,
    /// Hierarchies of batch's cgroups.
    pub place: Place,
    /// Hierarchy in which the agent has a cgroup of its own that can be frozen.
    pub home: Option<&'a Hierarchy>,
}

impl Default for Setting<'_> {
    fn default() -> Self {
        Self { lines: "", script: SPIN, place: Place::Lists, home: None }
    }
}

/// Service, batch and agent. The agent's own cgroup is dropped first: a frozen agent does not end.
pub struct Scene {
    pub home: Option<FreezableGroup>,
    pub words: Words,
    pub service: ServiceOnCommand,
    pub daemon: Daemon,
    pub file: File,
    pub batch: Container,
    pub tree: Tree,
    pub before: Footprint,
    _program: Program,
    _turn: Turn,
}

impl Scene {
    #[track_caller]
    pub fn start() -> Option<Self> {
        Self::start_with_setting(Setting::default())
    }

    #[track_caller]
    pub fn start_with_setting(setting: Setting<'_>) -> Option<Self> {
        let turn = lock_lanes()?;
        let before = Footprint::capture();
        let tree = Tree::make(setting.place)?;
        let (program, service) = Program::start_working_on_command();
        let batch = tree.start_container_with_script("one", setting.script);
        let file = File::with_holmes_policy().with_service(&program.service_match_line()).with_batch(tree.path());
        let file = file.with_lines("[lanes]\ngate = \"holder\"\npolicy = \"borrow-idle\"").with_lines(setting.lines);
        let home = setting.home.map(|found| FreezableGroup::make(found, "home").expect("its hierarchy freezes"));
        let run = Run::with_arguments(&[]);
        let run = home.iter().fold(run, |run, home| run.through_wrapper(&["sh", "-c", &home.enter_command()]));
        let mut daemon = Daemon::launch(&file, run);
        daemon.wait_for_managed_counts(1, 1);
        let words = Words::wait_and_map(&mut daemon.run);
        wait_until("batch was on its lane", || words.is_batch_on_lane());
        Some(Self { home, words, service, daemon, file, batch, tree, before, _program: program, _turn: turn })
    }

    /// Waits until batch is off the lane, and stays off.
    #[track_caller]
    pub fn wait_until_batch_leaves_lane(&self) {
        wait_until("batch had left", || self.words.is_kept_free() && self.words.has_batch_left());
        self.words.check_no_batch_while_held();
    }

    /// Waits until batch runs on the lane beside the idle service.
    #[track_caller]
    pub fn wait_until_batch_returns(&self) {
        wait_until("batch was back", || !self.words.busy() && self.words.is_batch_on_lane());
    }

    #[track_caller]
    pub fn end_and_check(self) {
        self.end_and_check_with(|| {});
    }

    /// Ends the agent, and calls `check_batch`. Checks that batch and service have their CPUs, and that no cgroup,
    /// kernel program or process of the agent is left.
    #[track_caller]
    pub fn end_and_check_with(self, check_batch: impl FnOnce()) {
        let Self { home, service, daemon, batch, tree, before, .. } = self;
        assert_eq!(allowed_cpus(service.pid()).as_deref(), Some(REQUEST_LANE), "the service was moved");
        daemon.end();
        assert_eq!((batch.cpus().as_str(), batch.is_frozen()), ("0-1", false));
        check_batch();
        drop((batch, tree, home));
        before.wait_until_restored();
    }
}
