//! Choice: which engine of cuDNN computes a graph, and with which knobs. Of the library's suggestions, only those are
//! taken that give the same bits each time. Never executes.

use std::ffi::c_int;
use std::rc::Rc;

use super::descriptor::{Descriptor, Heuristic, Knob, Note};
use super::graph::FusedShape;
use crate::device::cuda::library::Dnn;

/// Kinds of `cudnnBackendDescriptorType_t`.
const ENGINE: c_int = 2;
const CONFIGURATION: c_int = 3;
const HEURISTICS: c_int = 4;
const PLAN: c_int = 5;
const KNOB_CHOICE: c_int = 7;

/// Names of `cudnnBackendAttributeName_t`.
const HEURISTICS_MODE: c_int = 200;
const HEURISTICS_GRAPH: c_int = 201;
const HEURISTICS_RESULTS: c_int = 202;
const HEURISTICS_DEVICE: c_int = 204;
const CONFIGURATION_ENGINE: c_int = 300;
const CONFIGURATION_KNOBS: c_int = 302;
const CONFIGURATION_WORKSPACE: c_int = 303;
const PLAN_CONFIGURATION: c_int = 401;
const PLAN_WORKSPACE: c_int = 402;
const PLAN_DEVICE: c_int = 407;
const KNOB_TYPE: c_int = 600;
const KNOB_VALUE: c_int = 601;
const ENGINE_GRAPH: c_int = 1300;
const ENGINE_NUMBER: c_int = 1301;
const ENGINE_NOTES: c_int = 1303;
const ENGINE_DEVICE: c_int = 1307;

/// `CUDNN_HEUR_MODE_A`
const BY_DECISION_TREE: Heuristic = Heuristic(3);

/// `CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC`
const DIFFERS_EACH_TIME: Note = Note(4);

/// `CUDNN_KNOB_TYPE_STAGES`: for gradients, it decides the order in which they are summed.
const STAGES: Knob = Knob(14);

/// The most suggestions that the library is asked for, and more than its kinds of knobs or notes.
const SUGGESTIONS: usize = 16;
const KNOBS: usize = 64;

/// The setting of [`STAGES`] with which gradients have the same bits each time, in memory linear in the tokens, on a
/// device of this capability: on Hopper, blocks of keys take turns to add to the gradients of queries; on data-centre
/// Blackwell, these have a kernel of their own.
fn ordered_stages([major, _]: [i32; 2]) -> Option<i64> {
    match major {
        9 => Some(4),
        10 => Some(2),
        _ => None,
    }
}

/// An engine and its knobs, which decide the bits of a result along with its inputs.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct EngineChoice {
    pub engine: i64,
    pub knobs: Vec<(Knob, i64)>,
}

/// A plan that can be executed.
pub(super) struct FusedPlan {
    pub plan: Rc<Descriptor>,
    pub choice: EngineChoice,
    pub workspace_bytes: usize,
}

/// Finds plans for a device.
pub(super) struct Chooser<'a> {
    pub library: &'static Dnn,
    /// The library's description of the device.
    pub device: &'a Rc<Descriptor>,
    pub capability: [i32; 2],
}

impl Chooser<'_> {
    /// The plan for a shape.
    pub fn plan(&self, shape: &FusedShape) -> Result<FusedPlan, String> {
        let [major, minor] = self.capability;
        let stages = ordered_stages(self.capability);
        if shape.is_backward && stages.is_none() {
            return Err(format!(
                "on compute capability {major}.{minor} cuDNN has no gradients that are the same each time in memory linear in \
                 the tokens; on 9 and 10 it has"
            ));
        }
        let graph = shape.graph(self.library)?;
        let mut refused = "it has no way".to_owned();
        let mut found = Vec::new();
        for mut choice in self.suggested(&graph)? {
            if let Some(stages) = stages.filter(|_| shape.is_backward) {
                choice.knobs.retain(|&(knob, _)| knob != STAGES);
                choice.knobs.push((STAGES, stages));
            }
            match self.configuration(&graph, &choice) {
                Ok(configuration) => {
                    found.push((configuration.value::<i64>(CONFIGURATION_WORKSPACE)?, configuration, choice))
                }
                Err(reason) => refused = reason,
            }
        }
        if shape.is_backward {
            // An engine that keeps scores of all pairs of tokens needs more memory than one that does not.
            found.sort_by_key(|&(bytes, ..)| bytes);
        }
        let (_, configuration, choice) = found.into_iter().next().ok_or(refused)?;
        let plan = Descriptor::new(self.library, PLAN)?
            .with_parts(PLAN_CONFIGURATION, &[&configuration])?
            .with_parts(PLAN_DEVICE, &[self.device])?
            .finalized()?;
        let workspace_bytes = usize::try_from(plan.value::<i64>(PLAN_WORKSPACE)?).unwrap_or(usize::MAX);
        Ok(FusedPlan { plan, choice, workspace_bytes })
    }

    /// The library's suggestions, the best first, without those that it says may differ each time.
    fn suggested(&self, graph: &Rc<Descriptor>) -> Result<Vec<EngineChoice>, String> {
        let heuristics = Descriptor::new(self.library, HEURISTICS)?
            .with_parts(HEURISTICS_GRAPH, &[graph])?
            .with(HEURISTICS_MODE, &[BY_DECISION_TREE])?
            .with_parts(HEURISTICS_DEVICE, &[self.device])?
            .finalized()?;
        let mut choices = Vec::new();
        for configuration in heuristics.parts(HEURISTICS_RESULTS, CONFIGURATION, SUGGESTIONS)? {
            let engines = configuration.parts(CONFIGURATION_ENGINE, ENGINE, 1)?;
            let engine = engines.first().ok_or("cuDNN suggests no engine")?;
            if engine.values::<Note>(ENGINE_NOTES, KNOBS)?.contains(&DIFFERS_EACH_TIME) {
                continue;
            }
            let knobs = configuration.parts(CONFIGURATION_KNOBS, KNOB_CHOICE, KNOBS)?;
            let knob = |knob: &Descriptor| Ok((knob.value::<Knob>(KNOB_TYPE)?, knob.value::<i64>(KNOB_VALUE)?));
            let knobs = knobs.iter().map(knob).collect::<Result<_, String>>()?;
            choices.push(EngineChoice { engine: engine.value(ENGINE_NUMBER)?, knobs });
        }
        Ok(choices)
    }

    fn configuration(&self, graph: &Rc<Descriptor>, choice: &EngineChoice) -> Result<Rc<Descriptor>, String> {
        let engine = Descriptor::new(self.library, ENGINE)?
            .with_parts(ENGINE_GRAPH, &[graph])?
            .with(ENGINE_NUMBER, &[choice.engine])?
            .with_parts(ENGINE_DEVICE, &[self.device])?
            .finalized()?;
        let knob = |&(knob, value): &(Knob, i64)| {
            Descriptor::new(self.library, KNOB_CHOICE)?
                .with(KNOB_TYPE, &[knob])?
                .with(KNOB_VALUE, &[value])?
                .finalized()
        };
        let knobs = choice.knobs.iter().map(knob).collect::<Result<Vec<_>, String>>()?;
        let configuration =
            Descriptor::new(self.library, CONFIGURATION)?.with_parts(CONFIGURATION_ENGINE, &[&engine])?;
        let knobs: Vec<_> = knobs.iter().collect();
        configuration.with_parts(CONFIGURATION_KNOBS, &knobs)?.finalized()
    }
}
