//! Budget of hedges, to which each answered request adds.
//!
//! Problem. When all servers are slow because of too much load, hedges add load, and all get slower.
//!
//! Approach. Each answered request adds a part of a hedge to the budget, up to a limit; each hedge takes a whole one.
//! So the extra load stays below that part of the answered requests. An empty budget stops new hedges only. First
//! attempts do not use the budget. Retries of a request whose server was lost before its hedge do not use it either. A
//! hedge of which no byte was sent is given back.

/// One hedge, in thousandths.
const ONE_MILLI: u64 = 1000;

/// The tunables of [`HedgeBudget`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HedgeBudgetConfig {
    /// Thousandths of a hedge that each answered request adds: the ratio of the extra load in the long run.
    pub per_success_milli: u64,
    /// Largest number of hedges that can be saved, and the number at the start.
    pub burst: u64,
}

impl Default for HedgeBudgetConfig {
    /// Returns a budget of a tenth of the load, with a hundred hedges at once.
    fn default() -> Self {
        Self { per_success_milli: 100, burst: 100 }
    }
}

/// Hedges that are left in the budget.
#[derive(Clone, Debug)]
pub struct HedgeBudget {
    config: HedgeBudgetConfig,
    left_milli: u64,
}

impl HedgeBudget {
    /// Creates a full budget.
    pub fn new(config: HedgeBudgetConfig) -> Self {
        Self { config, left_milli: config.burst.saturating_mul(ONE_MILLI) }
    }

    /// Adds a part of a hedge, for a request that was answered.
    pub fn record_success(&mut self) {
        let limit = self.config.burst.saturating_mul(ONE_MILLI);
        self.left_milli = self.left_milli.saturating_add(self.config.per_success_milli).min(limit);
    }

    /// Takes a hedge if one is left. Returns whether one was left.
    pub fn take(&mut self) -> bool {
        let is_enough = self.left_milli >= ONE_MILLI;
        if is_enough {
            self.left_milli -= ONE_MILLI;
        }
        is_enough
    }

    /// Puts a hedge that was taken but not sent back into the budget.
    pub fn give_back(&mut self) {
        let limit = self.config.burst.saturating_mul(ONE_MILLI);
        self.left_milli = self.left_milli.saturating_add(ONE_MILLI).min(limit);
    }

    /// Returns the number of whole hedges that are left.
    pub fn hedges_left(&self) -> u64 {
        self.left_milli / ONE_MILLI
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ten_successes_add_a_hedge_at_a_ratio_of_a_tenth() {
        let mut budget = HedgeBudget::new(HedgeBudgetConfig { per_success_milli: 100, burst: 2 });
        assert_eq!([budget.take(), budget.take(), budget.take()], [true, true, false]);
        (0..9).for_each(|_| budget.record_success());
        assert!(!budget.take());
        budget.record_success();
        assert!(budget.take() && !budget.take());
    }

    #[test]
    fn returned_hedge_can_be_taken_again() {
        let mut budget = HedgeBudget::new(HedgeBudgetConfig { per_success_milli: 0, burst: 1 });
        assert!(budget.take() && !budget.take());
        budget.give_back();
        assert!(budget.take() && !budget.take());
    }

    #[test]
    fn budget_does_not_exceed_its_limit() {
        let mut budget = HedgeBudget::new(HedgeBudgetConfig { per_success_milli: 100, burst: 2 });
        budget.give_back();
        (0..1000).for_each(|_| budget.record_success());
        assert_eq!(budget.hedges_left(), 2);
    }

    #[test]
    fn empty_budget_allows_no_hedge() {
        let mut budget = HedgeBudget::new(HedgeBudgetConfig { per_success_milli: 0, burst: 0 });
        budget.record_success();
        assert!(!budget.take());
    }
}
