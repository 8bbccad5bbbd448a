//! Decoder: an engine as a worker decodes with it. It takes up newer weights as they arrive, and uses them between two calls.

use zero_core::device::Device;
use zero_core::layer::Earlier;
use zero_core::lost::Lost;
use zero_serve::follow::{Arrival, Receiver, WholeVersion};
use zero_serve::{Decoder, Row};

use crate::run::train::RankEngine;

/// Pieces of newer weights that are taken up between two steps.
const PIECES: usize = 4;

/// The place of a tensor in the flat buffer of a unit.
#[derive(Clone, Copy, Debug)]
pub struct TensorPlace {
    pub unit: usize,
    pub start: usize,
}

/// An engine with the weights of one version.
pub struct EngineDecoder<'e, 'p, D: Device> {
    engine: &'e mut RankEngine<'p, D>,
    version: String,
    /// Newer weights; none if none come.
    arrivals: Option<Receiver<Arrival>>,
    places: Vec<TensorPlace>,
    /// A version that is whole, and not in use yet.
    whole: Option<WholeVersion>,
    earlier: Vec<Earlier>,
    ids: Vec<u32>,
}

impl<'e, 'p, D: Device> EngineDecoder<'e, 'p, D> {
    /// A decoder whose engine has the weights of `version`, or gets its first from `arrivals`.
    pub fn new(
        engine: &'e mut RankEngine<'p, D>,
        version: String,
        arrivals: Option<Receiver<Arrival>>,
        places: Vec<TensorPlace>,
    ) -> Self {
        let slots = engine.plan().config.slots();
        let (earlier, ids) = (Vec::with_capacity(slots), Vec::with_capacity(slots));
        Self { engine, version, arrivals, places, whole: None, earlier, ids }
    }

    fn decode(&mut self, logits: &mut [f32]) -> Result<(), String> {
        self.engine.decode_slots(&self.earlier, &self.ids, logits).map(drop).map_err(said)
    }
}

fn said(lost: Lost) -> String {
    lost.to_string()
}

impl<D: Device> Decoder for EngineDecoder<'_, '_, D> {
    fn slots(&self) -> usize {
        self.engine.plan().config.slots()
    }

    fn length(&self) -> usize {
        self.engine.plan().config.length
    }

    fn classes(&self) -> usize {
        self.engine.program().head.classes
    }

    fn version(&self) -> &str {
        &self.version
    }

    fn prefill(&mut self, slot: usize, ids: &[u32], logits: &mut [f32]) -> Result<(), String> {
        self.engine.decode_slots(&[Earlier { slot, tokens: 0 }], ids, logits).map(drop).map_err(said)
    }

    fn step(&mut self, rows: &[Row], logits: &mut [f32]) -> Result<(), String> {
        self.earlier.clear();
        self.earlier.extend(rows.iter().map(|&Row { slot, cached, .. }| Earlier { slot, tokens: cached }));
        self.ids.clear();
        self.ids.extend(rows.iter().map(|row| row.id));
        self.decode(logits)
    }

    fn receive(&mut self) -> Result<bool, String> {
        let Some(arrivals) = &mut self.arrivals else { return Ok(false) };
        for _ in 0..PIECES {
            match arrivals.try_recv() {
                Ok(Arrival::Numbers { tensor, first, numbers }) => {
                    let TensorPlace { unit, start } = self.places[tensor];
                    self.engine.stage(unit, start + first, &numbers);
                }
                Ok(Arrival::Whole(whole)) => self.whole = Some(whole),
                // There are none now, or there will be none: whoever fetches them has said why.
                Err(_) => break,
            }
        }
        Ok(self.whole.is_some())
    }

    fn refresh(&mut self) -> Result<(), String> {
        let Some(whole) = self.whole.take() else { return Ok(()) };
        self.engine.use_staged().map_err(said)?;
        self.version = whole.take();
        Ok(())
    }
}
