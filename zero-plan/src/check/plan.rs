//! A whole plan, checked at run time.

use super::{BucketState, CheckScratch, CheckedTables, Fault, SlotState, UnitState, check, check_layout};
use crate::layout::Memory;
use crate::pipeline::Pass;
use crate::plan::Plan;

impl Plan<'_> {
    /// Checks the layout and the schedules of every pipeline stage with the rules of [`mod@crate::check`].
    ///
    /// # Errors
    /// The first rule that is broken.
    pub fn check(&self) -> Result<(), Fault> {
        let memories: Vec<Memory> = self.pipeline_stages.iter().map(|pipeline_stage| pipeline_stage.memory).collect();
        if let Some(rule) = check_layout(&self.tables(), &memories) {
            return Err(Fault { op: 0, rule });
        }
        for (pipeline, schedules) in self.pipeline_stages.iter().enumerate() {
            for pass in Pass::ALL {
                let ops = schedules.ops(pass);
                let subject = CheckedTables { pass, pipeline, tables: self.tables(), ops };
                let scratch = CheckScratch {
                    units: &mut vec![UnitState::NEW; self.units.len()],
                    buckets: &mut vec![BucketState::NEW; self.buckets.len()],
                    slots: &mut vec![SlotState::NEW; self.tables().activation_slots(pipeline)],
                };
                check(subject, scratch)?;
            }
        }
        Ok(())
    }
}
