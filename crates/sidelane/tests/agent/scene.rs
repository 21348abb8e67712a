//! Scene of an agent that lends a lane: a service on the request lane, and batch on the batch lane.

use sidelane_host::cgroup::Hierarchy;

use crate::common::lanes::REQUEST_LANE;
use crate::common::process::allowed_cpus;
use crate::common::{
    Footprint, FreezableGroup, Run, SPIN, ServiceOnCommand, Turn, Words, lanes_to_ourselves, wait_until,
};
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
    pub fn set() -> Option<Self> {
        Self::set_as(Setting::default())
    }

    #[track_caller]
    pub fn set_as(setting: Setting<'_>) -> Option<Self> {
        let turn = lanes_to_ourselves()?;
        let before = Footprint::now();
        let tree = Tree::make(setting.place)?;
        let (program, service) = Program::on_command();
        let batch = tree.container_that("one", setting.script);
        let file = File::holmes().with_service(&program.rule()).with_batch(tree.path());
        let file = file.and("[lanes]\ngate = \"holder\"\npolicy = \"borrow-idle\"").and(setting.lines);
        let home = setting.home.map(|found| FreezableGroup::make(found, "home").expect("its hierarchy freezes"));
        let run = Run::with_arguments(&[]);
        let run = home.iter().fold(run, |run, home| run.through(&["sh", "-c", &home.enter()]));
        let mut daemon = Daemon::launch(&file, run);
        daemon.wait_for(1, 1);
        let words = Words::of(&mut daemon.run);
        wait_until("batch was on its lane", || words.batch_is_on());
        Some(Self { home, words, service, daemon, file, batch, tree, before, _program: program, _turn: turn })
    }

    /// Waits until batch is off the lane, and stays off.
    #[track_caller]
    pub fn batch_must_leave(&self) {
        wait_until("batch had left", || self.words.is_kept() && self.words.is_left());
        self.words.must_stay_empty();
    }

    /// Waits until batch runs on the lane beside the idle service.
    #[track_caller]
    pub fn batch_must_come_back(&self) {
        wait_until("batch was back", || !self.words.busy() && self.words.batch_is_on());
    }

    #[track_caller]
    pub fn must_end_well(self) {
        self.must_end_well_and(|| {});
    }

    /// Ends the agent and checks that nothing is left. After that it calls `also`, which checks batch.
    #[track_caller]
    pub fn must_end_well_and(self, also: impl FnOnce()) {
        let Self { home, service, daemon, batch, tree, before, .. } = self;
        assert_eq!(allowed_cpus(service.pid()).as_deref(), Some(REQUEST_LANE), "the service was moved");
        daemon.end();
        assert_eq!((batch.cpus().as_str(), batch.is_frozen()), ("0-1", false));
        also();
        drop((batch, tree, home));
        before.must_come_back();
    }
}
