//! Device: the small set of operations that layers and the engine are written against. A new device is one folder that
//! implements [`Device`]. Never knows of units, ranks or schedules.

mod agreement;
mod argument;
mod available;
mod carried;
mod description;
mod element;
mod error;
mod failure;
mod groups;
mod mark;
mod memory;
mod rotary;
mod segment;
mod step;
mod stored;

pub use agreement::Agreement;
pub use argument::{AttentionShape, Matrix, Nonlinearity, Strided, StridedMut, Then, Write};
pub use available::{check_available, memory_bytes};
pub use carried::{Carried, Group, GroupPart};
pub use description::DeviceDescription;
pub use element::{Element, bf16, known, known_mut, narrow_pair, widen_pair};
pub use error::DeviceError;
pub use failure::Failure;
pub use mark::Mark;
pub use memory::{Buffer, DeviceMemory, Exchange, Reached, SharedParts};
pub use rotary::{Rotary, Scaling};
pub use segment::Segment;
pub use step::{AdamW, DecayRun, HyperBlock, ReportBlock};
pub use stored::{Stored, StoredMut, Weights};

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::atomic::AtomicU32;
use std::time::Duration;

use bytemuck::Pod;

use crate::view::{View, ViewMut};

/// Stack of each thread of a rank, for its calls and for the scratch of its kernels: as large as a main thread's
/// usually is, so that work that fits a main thread fits any thread.
pub const STACK_BYTES: usize = 8 << 20;

/// Asks whether a device should keep waiting, and passes how long it has slept since the last call.
pub type GoesOn<'a> = dyn Fn(Duration) -> bool + 'a;

/// Sums that [`Device::add_mean`] adds numbers onto in turn.
pub const MEAN_LANES: usize = 256;

/// The message of a device that no plan asks to carry bytes.
const NO_CARRIER: &str = "devices that reach memory of others carry nothing";

/// Operations on views of one device's memory. These rules apply to all of them:
///
/// - **Shapes.** Matrices are row-major; `(rows, width)` is a shape. Sizes that an op is not told follow from the
///   lengths of its views. An op panics if lengths do not fit. The result for an id beyond its table is unspecified,
///   but the op touches no other memory.
/// - **Order.** Ops take effect in the order of the calls. An op may run after its call has returned; only
///   [`Device::read`] waits for it.
/// - **Aliasing.** The destination of an op overlaps none of its other arguments, unless the op says so.
/// - **Writing.** `:=` overwrites all of a destination, even if it held NaN; `+=` adds to all of it.
/// - **Rounding.** A result is computed in f32 or wider, whatever its width in memory, and is rounded once, when it is
///   stored: to nearest, ties to even. An implementation may round a product and a sum together, and may round a matrix
///   product to the width of its result before it adds it to that. It may approximate exponentials and roots to a few
///   units in the last place of an f32. Infinities and NaN show in the result. In
///   products of bf16, subnormal factors and sums may count as zeros.
/// - **Sums.** Their order depends on shapes alone, not on timing or threads, so a repeated op gives the same bits.
/// - **Queues.** On a device that works asynchronously, an op goes to the queue that [`Device::enter`] chose, and that
///   queue must have waited for whatever the op reads from other queues. "All ops so far" are those of all queues.
pub trait Device: Sized + Send + 'static {
    /// The most features of a head in [`Device::attention`].
    const HEAD_DIM_MAX: usize;

    /// How many logits a model's head computes at a time: by default as many as stay in a processor's cache.
    const LOGITS: usize = 1 << 18;

    /// The least number of tokens that it computes logits of at a time: enough rows for a matrix product.
    const LOGITS_ROWS_MIN: usize = 64;

    /// Memory of this device.
    type Memory: DeviceMemory;

    /// The device for the rank with this number on its host: the device of the same number, unless the user of the
    /// program has chosen another.
    ///
    /// # Errors
    /// If there is no such device, or it cannot be used.
    fn open(local_rank: usize) -> Result<Self, DeviceError>;

    /// All devices of this host that have memory of their own, or those that the user of the program has chosen, each
    /// once.
    ///
    /// # Errors
    /// If there are none, or one cannot be used.
    fn all() -> Result<Vec<Self>, DeviceError> {
        Ok(Vec::new())
    }

    /// What it is, if it has memory of its own.
    fn description(&self) -> Option<DeviceDescription> {
        None
    }

    /// The same device for another thread, which only calls [`Device::read`] on it and sees the results of all ops so
    /// far.
    fn beside(&self) -> Self;

    /// Runs `work` on this device, which may use this many threads of the host meanwhile, the calling thread included.
    /// Threads are called `name` and a number.
    ///
    /// # Errors
    /// If the system cannot start the threads.
    fn on_threads<R: Send>(
        self,
        threads: NonZeroUsize,
        name: &str,
        work: impl FnOnce(Self) -> R + Send,
    ) -> Result<R, DeviceError> {
        let _ = (threads, name);
        Ok(work(self))
    }

    /// The first error on this device, if there was one: ops do nothing after it. An error that the device notices late
    /// is known after the next read.
    fn failure(&self) -> Option<Failure> {
        None
    }

    /// Makes the events of [`Device::record`] and [`Device::wait`], before the first step, and keeps those that exist
    /// already.
    ///
    /// # Errors
    /// If the device does not have that many.
    fn prepare(&self, events: usize) -> Result<(), DeviceError> {
        let _ = events;
        Ok(())
    }
    /// From here on, ops go to this queue of the device; the first has number 0. A device that runs each op at once has
    /// one queue.
    fn enter(&self, queue: usize) {
        let _ = queue;
    }
    /// Records an event after everything that the entered queue has been asked for so far.
    fn record(&self, event: usize) {
        let _ = event;
    }
    /// Makes everything that the entered queue is asked for from here on wait for the last record of the event.
    fn wait(&self, event: usize) {
        let _ = event;
    }

    /// Begins a pass that is repeated: with the same key, it has the same ops each time, on the same places and in the
    /// same queues; only staged data, counts, and the words that tell them differ. A device with queues may keep the
    /// pass and run it as one. Ops go to the first queue until another is entered, and all queues that are entered wait
    /// for the first queue beforehand.
    fn begin_repeated(&self, key: u64) {
        let _ = key;
    }
    /// Ends the pass that [`Device::begin_repeated`] began, if there is one. The first queue then continues after all
    /// of the pass, and has waited for the others. The device may leave all of the pass undone until then.
    fn end_repeated(&self) {}

    /// From here on until [`Device::ready`], ops have no effect; the device only learns what they need. A device that
    /// needs only its program is not asked.
    fn rehearse(&self) {}
    /// Prepares what the ops of the rehearsal need, so that they need not wait for it later; ends the rehearsal.
    fn ready(&self) {}
    /// The features of a processor by which a device that computes there chooses its kernels. As they decide bits, ranks
    /// must have the same ones.
    const FEATURES: &'static [&'static str] = &[];
    /// Which of [`Device::FEATURES`] this processor has: bit i stands for the feature with index i.
    fn features() -> u64 {
        0
    }
    /// The properties of this device, and of what it has prepared, that decide bits: ranks that differ in them would
    /// get different results.
    fn marks(&self) -> Vec<Mark> {
        Vec::new()
    }

    /// The memory that this rank takes on the device, and for it on the host, outside all arenas: the purpose and the
    /// measured bytes of each part.
    fn outside(&self) -> Vec<(&'static str, usize)> {
        Vec::new()
    }

    /// Lends scratch memory to ops, each of which may use it while it runs. Its length is the plan's, and its content
    /// is arbitrary. A device that needs none ignores it.
    ///
    /// # Safety
    /// Until this device is dropped, or is lent other memory, nobody else reads or writes it.
    #[allow(unsafe_code)]
    unsafe fn lend(&self, workspace: ViewMut<Self, u8>) {
        let _ = workspace;
    }

    /// `bytes` bytes of zeros, for this rank alone.
    ///
    /// # Errors
    /// If the device does not have that much.
    fn allocate(&self, bytes: usize) -> Result<Self::Memory, DeviceError>;
    /// The memory that ranks share, as this device reaches it: on a device that works in the host's memory, the segment
    /// itself; otherwise the part on each rank's device. [`Device::reach`] gives addresses within the segment.
    ///
    /// # Errors
    /// If the device, or the device of another rank, cannot reach it.
    fn share(&self, segment: Arc<Segment>, parts: SharedParts) -> Result<Self::Memory, DeviceError>;
    /// Lets the host `fill` a staging buffer of any content, as long as `to`. The ops that follow find in `to` what it
    /// wrote.
    fn stage<T: Pod>(&self, to: ViewMut<Self, T>, fill: impl FnOnce(&mut [T]));
    /// Repeats a [`Device::stage`] of the same pass, after which numbers were only added to `to`. The new numbers must
    /// be such that sums do not change them, such as NaN. Restaging adds no op to a pass that repeats.
    fn restage<T: Pod>(&self, to: ViewMut<Self, T>, fill: impl FnOnce(&mut [T])) {
        self.stage(to, fill);
    }
    /// `to` := `from`, on the host: waits until all ops so far are done.
    fn read<T: Pod>(&self, from: View<Self, T>, to: &mut [T]);

    /// Whether ops run after their calls have returned, in queues of the device. The device then waits and tells for
    /// its rank.
    const QUEUES: bool = false;
    /// Sets a count, which only this rank sets and others wait for, once all ops so far of the queue are done.
    fn tell(&self, word: &AtomicU32, count: u32) {
        let _ = (word, count);
        unreachable!("the host tells for a device without queues");
    }
    /// Delays all later ops of the queue until a count, which wraps around, has reached `target`.
    fn await_count(&self, word: &AtomicU32, target: u32) {
        let _ = (word, target);
        unreachable!("the host waits for a device without queues");
    }
    /// Names for this many groups of ranks. One rank makes them, all ranks receive them, and [`Device::connect`] joins
    /// groups by them.
    ///
    /// # Errors
    /// If the device cannot reach others so.
    fn name_groups(&self, count: usize) -> Result<Vec<u8>, DeviceError> {
        let _ = count;
        unreachable!("{NO_CARRIER}")
    }
    /// Joins groups of ranks, in the same order as their other members, so that [`Device::carry`] can carry bytes. It
    /// waits for those members as long as `goes_on` agrees, and passes it how long it has slept since it last asked.
    ///
    /// # Errors
    /// If the device cannot reach others this way, or they do not come.
    fn connect(&self, groups: &[Group], names: &[u8], goes_on: &GoesOn) -> Result<(), DeviceError> {
        let _ = (groups, names, goes_on);
        unreachable!("{NO_CARRIER}")
    }
    /// Makes the queue send, receive and gather all these at once, as one op, within the group that was joined with
    /// this number.
    ///
    /// # Safety
    /// Until the queue has done it, nobody writes the bytes that are sent or touches the places that receive. The
    /// members of the group ask for the counterparts, in the same order between any two of them.
    #[allow(unsafe_code)]
    unsafe fn carry(&self, group: usize, parcels: &mut dyn Iterator<Item = Carried<Self>>, goes_on: &GoesOn) {
        let _ = (group, parcels, goes_on);
        unreachable!("{NO_CARRIER}")
    }
    /// Leaves all groups. Exchanges that still wait for others end, successful or not.
    fn disconnect(&self) {}

    /// Whether all ops so far have ended, successful or not; sends from queues that no stream of a plan has do not
    /// count.
    fn is_idle(&self) -> bool {
        true
    }
    /// The device's address of an address in the memory that ranks share on the host: see [`Device::share`].
    fn reach<T>(&self, host: *mut T) -> *mut T {
        host
    }

    /// `to` := `from`.
    fn copy<T: Pod>(&self, to: ViewMut<Self, T>, from: View<Self, T>);
    /// `to` := `value` everywhere.
    fn fill<T: Pod + Send + Sync>(&self, to: ViewMut<Self, T>, value: T);
    /// `to` := `from`, rounded to the nearest number that `to` can store, ties to even; NaN stays NaN.
    fn convert(&self, to: StoredMut<Self>, from: Stored<Self>);
    /// `y` += `x`.
    fn add<E: Element>(&self, y: ViewMut<Self, E>, x: View<Self, E>);
    /// `y` *= `x`, elementwise.
    fn mul<E: Element>(&self, y: ViewMut<Self, E>, x: View<Self, E>);
    /// `y` *= `factor` everywhere.
    fn scale<E: Element>(&self, y: ViewMut<Self, E>, factor: f32);
    /// `y` := `alpha` `x` + `beta` `y`, elementwise.
    fn axpby<E: Element>(&self, alpha: f32, x: View<Self, E>, beta: f32, y: ViewMut<Self, E>);

    /// `c` (m, n) := or += `a` (m, k) `b` (k, n). A sum over k may begin or end with the old value of `c`.
    fn matmul<O: Element, E: Element>(&self, c: ViewMut<Self, O>, a: Matrix<Self, E>, b: Matrix<Self, E>, write: Write);
    /// `y` (rows, output) := `x` (rows, input) times the transpose of `weight` (output, input), plus `bias` (output) in
    /// every row; then applies `then`.
    fn linear<E: Element>(
        &self,
        y: ViewMut<Self, E>,
        x: View<Self, E>,
        weight: Matrix<Self, E>,
        bias: Option<View<Self, E>>,
        then: Then<Self, E>,
    );
    /// `out` (width) := or += the sum of the rows of `x` (rows, width).
    fn sum_rows<E: Element>(&self, x: View<Self, E>, out: ViewMut<Self, f32>, write: Write);
    /// `y` := f(`x`), elementwise.
    fn activate<E: Element>(&self, kind: Nonlinearity, x: View<Self, E>, y: ViewMut<Self, E>);
    /// `dx` := `dy` f'(`x`), elementwise.
    fn activate_backward<E: Element>(
        &self,
        kind: Nonlinearity,
        x: View<Self, E>,
        dy: View<Self, E>,
        dx: ViewMut<Self, E>,
    );

    /// Layer norm of each row: `y` (rows, width) := (`x` - mean) / sqrt(variance + `epsilon`) `gain` + `bias`, where the
    /// variance is the biased one. `stats` (rows, 2) takes the mean and 1 / sqrt(variance + epsilon).
    fn layer_norm<E: Element>(
        &self,
        x: View<Self, E>,
        gain: View<Self, E>,
        bias: View<Self, E>,
        y: ViewMut<Self, E>,
        stats: ViewMut<Self, f32>,
        epsilon: f32,
    );
    /// Its vector-Jacobian product: `dx`, if wanted, := the gradient of `x`, and `plus` is added as by [`Device::add`];
    /// `dgain` and `dbias` (width) := or += their gradients.
    #[allow(clippy::too_many_arguments, reason = "one argument for each tensor of the formula")]
    fn layer_norm_backward<E: Element>(
        &self,
        x: View<Self, E>,
        gain: View<Self, E>,
        stats: View<Self, f32>,
        dy: View<Self, E>,
        dx: Option<ViewMut<Self, E>>,
        plus: Option<View<Self, E>>,
        dgain: ViewMut<Self, f32>,
        dbias: ViewMut<Self, f32>,
        write: Write,
    );
    /// Root-mean-square norm of each row: `y` (rows, width) := `x` / sqrt(mean(x^2) + `epsilon`) `gain`. `inverse` (rows)
    /// takes 1 / sqrt(mean(x^2) + epsilon).
    fn rms_norm<E: Element>(
        &self,
        x: View<Self, E>,
        gain: View<Self, E>,
        y: ViewMut<Self, E>,
        inverse: ViewMut<Self, f32>,
        epsilon: f32,
    );
    /// Its vector-Jacobian product, as in [`Device::layer_norm_backward`].
    #[allow(clippy::too_many_arguments, reason = "one argument for each tensor of the formula")]
    fn rms_norm_backward<E: Element>(
        &self,
        x: View<Self, E>,
        gain: View<Self, E>,
        inverse: View<Self, f32>,
        dy: View<Self, E>,
        dx: Option<ViewMut<Self, E>>,
        plus: Option<View<Self, E>>,
        dgain: ViewMut<Self, f32>,
        write: Write,
    );
    /// RMS norm, as [`Device::rms_norm`], of each of `heads` parts of each row. They are the first `heads` x width
    /// features, where the width is that of `gain`; `inverse` is (rows, heads).
    fn rms_norm_heads<E: Element>(
        &self,
        x: Strided<Self, E>,
        heads: usize,
        gain: View<Self, E>,
        y: StridedMut<Self, E>,
        inverse: ViewMut<Self, f32>,
        epsilon: f32,
    );
    /// Its vector-Jacobian product, in place: turns `dy` into the gradient of `x`. `dgain` (width) := or += its
    /// gradient, summed over rows and heads.
    #[allow(clippy::too_many_arguments, reason = "one argument for each tensor of the formula")]
    fn rms_norm_heads_backward<E: Element>(
        &self,
        x: Strided<Self, E>,
        heads: usize,
        gain: View<Self, E>,
        inverse: View<Self, f32>,
        dy: StridedMut<Self, E>,
        dgain: ViewMut<Self, f32>,
        write: Write,
    );
    /// `table` (positions, head_dim) := for each position from `first` on, head_dim / 2 cosines, then as many sines.
    /// The angles are the position, in f32, times each frequency of `rotary`, and all entries are multiplied by the
    /// factor that it has for them. Heads have an even width, at most [`Device::HEAD_DIM_MAX`].
    fn rotary_table(&self, rotary: &Rotary, first: usize, head_dim: usize, table: ViewMut<Self, f32>);
    /// Rotates the first `heads` heads of each row of `x` in place. In each head, features i and i + head_dim / 2, x
    /// and y, become x cos - y sin and y cos + x sin, with cosine and sine i of row t % `length` of `table` (length,
    /// head_dim), where t is the number of the row of `x`. With `back`, the angles are negative: the vector-Jacobian
    /// product.
    fn rotate<E: Element>(
        &self,
        x: StridedMut<Self, E>,
        heads: usize,
        table: View<Self, f32>,
        length: usize,
        back: bool,
    );
    /// `y` (rows, width) := f(the first half of each row of `x`) times the second half, with `x` (rows, 2 width).
    fn gate<E: Element>(&self, kind: Nonlinearity, x: View<Self, E>, y: ViewMut<Self, E>, width: usize);
    /// Its vector-Jacobian product: `dx` (rows, 2 width) := the gradient of `x`, given `dy` (rows, width).
    fn gate_backward<E: Element>(
        &self,
        kind: Nonlinearity,
        x: View<Self, E>,
        dy: View<Self, E>,
        dx: ViewMut<Self, E>,
        width: usize,
    );
    /// Causal attention of each token to itself and those before it in its sequence, or to as many as a window allows.
    /// For each head, `out` (tokens, heads head_dim) := softmax(q k^T / sqrt(head_dim)) v, where [`AttentionShape`]
    /// gives the rows of `q`, `k` and `v`. `lse` (tokens, heads) takes the log-sum-exp of each row of the softmax.
    /// Scores may be of any finite size. A key or value that is not finite shows in all tokens that see it, and may
    /// show in others of its sequence.
    fn attention<E: Element>(
        &self,
        shape: AttentionShape,
        q: Strided<Self, E>,
        k: Strided<Self, E>,
        v: Strided<Self, E>,
        out: ViewMut<Self, E>,
        lse: ViewMut<Self, f32>,
    );
    /// Its vector-Jacobian product where all tokens have queries (`before` is 0): each row of `dqkv` := the gradients
    /// of a token's queries, then keys, then values.
    #[allow(clippy::too_many_arguments, reason = "one argument for each tensor of the formula")]
    fn attention_backward<E: Element>(
        &self,
        shape: AttentionShape,
        q: Strided<Self, E>,
        k: Strided<Self, E>,
        v: Strided<Self, E>,
        out: View<Self, E>,
        lse: View<Self, f32>,
        dout: View<Self, E>,
        dqkv: ViewMut<Self, E>,
    );
    /// `out` (tokens, width) := rows of `table` (vocabulary, width) by id; plus, if there are `positions` (context,
    /// width), their rows by place in the sequence. There are whole sequences of `length` tokens, which is at most the
    /// context.
    fn embed<E: Element>(
        &self,
        ids: View<Self, u32>,
        table: View<Self, E>,
        positions: Option<View<Self, E>>,
        out: ViewMut<Self, E>,
        length: usize,
    );
    /// Its vector-Jacobian product. A row that no token refers to is 0, or left as it is.
    fn embed_backward<E: Element>(
        &self,
        ids: View<Self, u32>,
        dout: View<Self, E>,
        dtable: ViewMut<Self, f32>,
        dpositions: Option<ViewMut<Self, f32>>,
        length: usize,
        write: Write,
    );
    /// `loss` (rows) := the log-sum-exp of each row of `logits` (rows, classes) minus the target's logit. Logits may be
    /// of any finite size.
    fn cross_entropy<E: Element>(&self, logits: View<Self, E>, targets: View<Self, u32>, loss: ViewMut<Self, f32>);
    /// The same, and its vector-Jacobian product: turns `logits` into their gradient, and in `loss` the gradient of each
    /// loss into the loss.
    fn cross_entropy_backward<E: Element>(
        &self,
        logits: ViewMut<Self, E>,
        targets: View<Self, u32>,
        loss: ViewMut<Self, f32>,
    );
    /// `loss` (rows) := the mean of (x - t)^2 over each row of `x` and `targets` (rows, width).
    fn squared_error<E: Element>(&self, x: View<Self, E>, targets: View<Self, f32>, loss: ViewMut<Self, f32>);
    /// Its vector-Jacobian product: `dx` (rows, width).
    fn squared_error_backward<E: Element>(
        &self,
        x: View<Self, E>,
        targets: View<Self, f32>,
        dloss: View<Self, f32>,
        dx: ViewMut<Self, E>,
    );

    /// `to` := or += the sum of `count` stretches along the tree that halves them at powers of two: of n, the first
    /// `n.next_power_of_two() / 2` are summed before the others are added. Summand number `own`, if there is one, is
    /// the content of `to`; `source` is not called for it, and may be called any number of times for each of the
    /// others. All are as long as `to` and stored in its width. A device whose ranks may be on several hosts also
    /// accepts another width, unless `to` is a summand.
    ///
    /// Sums are f32, each rounded once, and the last is rounded once more to the width of `to`: the bits are those of
    /// this definition.
    fn reduce<'a>(
        &self,
        to: StoredMut<Self>,
        count: usize,
        own: Option<usize>,
        source: &dyn Fn(usize) -> Stored<'a, Self>,
        write: Write,
    );
    /// `to` (1) += the mean of `x`: its sum in f64, divided by its length. Each of [`MEAN_LANES`] sums takes every such
    /// number; then the upper half of the sums is added onto the lower half, and so on.
    fn add_mean(&self, x: View<Self, f32>, to: ViewMut<Self, f64>);
    /// `to` (1) := the sum of squares, in f64.
    fn squares(&self, x: Stored<Self>, to: ViewMut<Self, f64>);
    /// `report` (1) := the result of `agreement` from the words of all ranks, (ranks, [`Agreement::values`]), and from
    /// `hyper` (1).
    fn agree(
        &self,
        agreement: &Agreement,
        all: View<Self, f64>,
        hyper: View<Self, HyperBlock>,
        report: ViewMut<Self, ReportBlock>,
    );
    /// [`Device::adamw`] with the numbers of the blocks, on elements that are subject to weight decay by runs, which
    /// lie one after another, [`DecayRun::MOST`] at most. Does nothing if the report is not finite.
    #[allow(clippy::too_many_arguments, reason = "one argument for each tensor of the formula")]
    fn update(
        &self,
        runs: &[DecayRun],
        hyper: View<Self, HyperBlock>,
        report: View<Self, ReportBlock>,
        weights: Weights<Self>,
        grads: Stored<Self>,
        m: StoredMut<Self>,
        v: StoredMut<Self>,
    );
    /// One AdamW step in f32, elementwise: its result does not depend on how a flat buffer is cut. Numbers that are
    /// stored as bf16 are rounded once, after the step.
    fn adamw<'a>(
        &self,
        step: &AdamW,
        weights: impl Into<Weights<'a, Self>>,
        grads: impl Into<Stored<'a, Self>>,
        m: impl Into<StoredMut<'a, Self>>,
        v: impl Into<StoredMut<'a, Self>>,
    );
    /// The momentum of Muon (Jordan et al., 2024), elementwise and in f32, so that its result does not depend on how a
    /// flat buffer is cut. With g, the sums in `gradients` times the report's `grad_scale`: `m` := m + (1 - momentum)
    /// (g - m), and then `gradients` := g + momentum (m - g), Nesterov's direction, with `m` before it is rounded. Does
    /// nothing if the report is not finite.
    fn momentum(
        &self,
        hyper: View<Self, HyperBlock>,
        report: View<Self, ReportBlock>,
        gradients: StoredMut<Self>,
        m: StoredMut<Self>,
    );
    /// `to` := `from` / max(sqrt(`square`), `epsilon`), where `square` (1) is a result of [`Device::squares`]. The
    /// divisor is f64, and its reciprocal is rounded to f32.
    fn normalize<E: Element>(&self, to: ViewMut<Self, E>, from: Stored<Self>, square: View<Self, f64>, epsilon: f64);
    /// One step along a `direction`, elementwise: p := p (1 - lr weight_decay) - lr `factor` `direction`. The factors
    /// of p and of the direction are worked out in f64 and rounded to f32. Parameters decay if `decays` is true. Does
    /// nothing if the report is not finite. Parameters that are stored as bf16 are rounded once, after the step.
    #[allow(clippy::too_many_arguments, reason = "one argument for each part of the formula")]
    fn step_along<E: Element>(
        &self,
        decays: bool,
        factor: f64,
        hyper: View<Self, HyperBlock>,
        report: View<Self, ReportBlock>,
        weights: Weights<Self>,
        direction: View<Self, E>,
    );
    /// Whether no element is infinite or NaN. Asks the host, so no step does.
    fn all_finite<'a>(&self, x: impl Into<Stored<'a, Self>>) -> bool;
}
