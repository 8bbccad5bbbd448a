//! Device: the small set of operations that layers and the engine are written against. A new device is one folder that
//! implements [`Device`]. Never knows of units, ranks or schedules.

mod agreement;
mod argument;
mod carried;
pub mod cpu;
#[cfg(feature = "cuda")]
pub mod cuda;
mod element;
mod failure;
mod mark;
mod memory;
mod rotary;
mod step;
mod stored;

pub use agreement::Agreement;
pub use argument::{AttentionShape, Matrix, Nonlinearity, Strided, StridedMut, Then, Write};
pub use carried::{Carried, Group, GroupPart};
pub use cpu::device::Cpu;
#[cfg(feature = "cuda")]
pub use cuda::handle::Cuda;
pub use element::{Element, bf16};
pub use failure::Failure;
pub use mark::Mark;
pub use memory::{Buffer, DeviceMemory, Exchange, SharedParts};
pub use rotary::{Rotary, Scaling};
pub use step::{AdamW, HyperBlock, ReportBlock};
pub use stored::{Stored, StoredMut, Weights};

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::atomic::AtomicU32;
use std::time::Duration;

use bytemuck::Pod;

use crate::launch::{LaunchError, Segment};
use crate::view::{View, ViewMut};

/// Room for a thread's own calls and for the scratch of its kernels: as much as a main thread usually has, so that what runs
/// there runs on every thread.
pub(crate) const STACK_BYTES: usize = 8 << 20;

/// Whether a device is to go on with a wait in which it has slept for so long since it asked last.
pub type GoesOn<'a> = dyn Fn(Duration) -> bool + 'a;

/// What a device says that no plan asks to carry bytes.
const NO_CARRIER: &str = "devices that reach memory of others carry nothing";

/// Operations on views of one device's memory. What applies to all of them:
///
/// - **Shapes.** Matrices are row-major; `(rows, width)` is a shape. Sizes that an op is not told follow from the lengths of
///   its views. Lengths that do not fit are a panic. What an op makes of an id beyond its table is open, but it touches no
///   other memory.
/// - **Order.** Ops take effect in the order of the calls. An op may be done later than its call returns; only
///   [`Device::read`] waits for it.
/// - **Aliasing.** What an op writes overlaps nothing else that it is given, unless it says so.
/// - **Writing.** `:=` overwrites all of a destination, whatever it held, NaN included; `+=` adds to all of it.
/// - **Rounding.** Whatever it is stored as, a result is computed in f32 or wider, and rounded once, when it is stored: to
///   nearest, ties to even. Whether a product and a sum are rounded together is the implementation's choice, and so is how
///   exponentials and roots are approximated: to a few units in the last place of an f32. Infinities and NaN show in the
///   result. Of products of bf16, subnormal factors and sums may count as zeros.
/// - **Sums.** Their order depends on shapes alone, neither on timing nor on threads: an op repeated gives the same bits.
/// - **Queues.** On a device that works behind the host's back, an op goes to the queue that [`Device::enter`] has chosen, and
///   what it reads from other queues must have been waited for there. "All ops so far" are those of all queues.
pub trait Device: Sized + Send + 'static {
    /// The most features of a head in [`Device::attention`].
    const HEAD_DIM_MAX: usize;

    /// The same in [`Device::fused_attention`], whose heads have a multiple of 8 features; 0 where the device has none.
    const FUSED_HEAD_DIM_MAX: usize = 0;

    /// Logits that a model's head has at one time: as many as stay in a processor's cache, unless a device says otherwise.
    const LOGITS: usize = 1 << 18;

    /// Tokens of which it has them at one time, at least: enough rows for a matrix product.
    const LOGITS_ROWS_MIN: usize = 64;

    /// Memory of this device.
    type Memory: DeviceMemory;

    /// The device for the rank with this number among those of its host: the one of that number, unless the user of the
    /// program has chosen another.
    ///
    /// # Errors
    /// If there is no such device, or it cannot be used.
    fn open(local_rank: usize) -> Result<Self, LaunchError>;

    /// The same device for another thread, which asks it to [`Device::read`] and nothing else: what it reads is what all ops so
    /// far have left there.
    fn beside(&self) -> Self;

    /// Does `work` on this device, which may use so many threads of the host for as long: they are called `name` and a number.
    /// One thread is the calling one.
    ///
    /// # Errors
    /// If the system has no threads to give.
    fn on_threads<R: Send>(
        self,
        threads: NonZeroUsize,
        name: &str,
        work: impl FnOnce(Self) -> R + Send,
    ) -> Result<R, LaunchError> {
        let _ = (threads, name);
        Ok(work(self))
    }

    /// The first thing that has gone wrong on this device, if anything has: from then on ops do nothing. What a device finds
    /// out late, a read knows at the latest.
    fn failure(&self) -> Option<Failure> {
        None
    }

    /// Makes what [`Device::record`] and [`Device::wait`] count, before the first step. More than there are already.
    ///
    /// # Errors
    /// If the device has not as many.
    fn prepare(&self, events: usize) -> Result<(), LaunchError> {
        let _ = events;
        Ok(())
    }
    /// From here on, ops go to this queue of the device, of which number 0 is the first. A device that does what it is told at
    /// once has one queue.
    fn enter(&self, queue: usize) {
        let _ = queue;
    }
    /// Marks with an event what the queue that was entered has been asked for so far.
    fn record(&self, event: usize) {
        let _ = event;
    }
    /// What the queue that was entered is asked for from here on begins after what the event marked last.
    fn wait(&self, event: usize) {
        let _ = event;
    }

    /// A pass begins that is asked for again and again: with this key, the same ops each time, on the same places and in the same
    /// queues, but for what is staged, counts, and the words that tell them. A device with queues may keep it and do it as one.
    /// Ops go to the first queue until another is entered, and all queues that are entered wait for that one first.
    fn begin_repeated(&self, key: u64) {
        let _ = key;
    }
    /// Ends the pass that [`Device::begin_repeated`] has begun, if one has. The first queue then comes after all of it, and has
    /// waited for the others: before that, nothing of it need be done.
    fn end_repeated(&self) {}

    /// From here on until [`Device::ready`], ops are asked for to no effect but that the device learns what they take. A device
    /// that needs nothing but its program is not asked.
    fn rehearse(&self) {}
    /// Gets ready what the ops of the rehearsal take, so that they need not wait for it later; ends the rehearsal.
    fn ready(&self) {}
    /// What of this device and of what it has got ready decides bits: ranks that differ here would give other results.
    fn marks(&self) -> Vec<Mark> {
        Vec::new()
    }

    /// What this rank takes of the device, and of the host for it, that is in no arena: of what, and how many bytes, as measured.
    fn outside(&self) -> Vec<(&'static str, usize)> {
        Vec::new()
    }

    /// Lends memory that ops may use for themselves, each for as long as it runs: as long as the plan says, and of any content.
    /// A device that needs none leaves it alone.
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
    /// If the device has not that much to give.
    fn allocate(&self, bytes: usize) -> Result<Self::Memory, LaunchError>;
    /// The memory that ranks share, as this device reaches it: the segment itself on a device that has the host's, and
    /// otherwise the parts that each rank's device has of it. What lies in the segment is reached by [`Device::reach`].
    ///
    /// # Errors
    /// If the device cannot reach it; on another rank, if that one cannot.
    fn share(&self, segment: Arc<Segment>, parts: SharedParts) -> Result<Self::Memory, LaunchError>;
    /// Lets the host `fill` a staging place, of any content and as long as `to`. What it leaves there is in `to` for the
    /// ops that follow.
    fn stage<T: Pod>(&self, to: ViewMut<Self, T>, fill: impl FnOnce(&mut [T]));
    /// [`Device::stage`] again, in the same pass, of numbers that have only been added to since, with numbers that sums do not
    /// change, such as NaN. No op more where a pass repeats.
    fn restage<T: Pod>(&self, to: ViewMut<Self, T>, fill: impl FnOnce(&mut [T])) {
        self.stage(to, fill);
    }
    /// `to` := `from`, on the host: waits until all ops so far are done.
    fn read<T: Pod>(&self, from: View<Self, T>, to: &mut [T]);

    /// Whether ops are done later than their calls return, in queues of the device, which then waits and tells for its rank.
    const QUEUES: bool = false;
    /// Sets a count that this rank alone tells, and that others wait for, once all ops so far of the queue are done.
    fn tell(&self, word: &AtomicU32, count: u32) {
        let _ = (word, count);
        unreachable!("the host tells for a device without queues");
    }
    /// Does no later op of the queue before a count, which wraps around, has reached `target`.
    fn await_count(&self, word: &AtomicU32, target: u32) {
        let _ = (word, target);
        unreachable!("the host waits for a device without queues");
    }
    /// Names for so many groups of ranks: one rank makes them, all hear them, and [`Device::connect`] joins by them.
    ///
    /// # Errors
    /// If the device cannot reach others so.
    fn name_groups(&self, count: usize) -> Result<Vec<u8>, LaunchError> {
        let _ = count;
        unreachable!("{NO_CARRIER}")
    }
    /// Joins groups of ranks, in the order in which their other members do, to [`Device::carry`] bytes from then on. It waits
    /// for those members as long as `goes_on` says, which it tells how long it has slept since it asked that last.
    ///
    /// # Errors
    /// If the device cannot reach others so, or they do not come.
    fn connect(&self, groups: &[Group], names: &[u8], goes_on: &GoesOn) -> Result<(), LaunchError> {
        let _ = (groups, names, goes_on);
        unreachable!("{NO_CARRIER}")
    }
    /// Has the queue send, receive and gather all these at once, as an op, within the group that was joined with this number.
    ///
    /// # Safety
    /// Nobody writes what is sent or touches what is received before the queue has done it, and the members of the group ask
    /// for the counterparts, in the same order between any two of them.
    #[allow(unsafe_code)]
    unsafe fn carry(&self, group: usize, parcels: &mut dyn Iterator<Item = Carried<Self>>, goes_on: &GoesOn) {
        let _ = (group, parcels, goes_on);
        unreachable!("{NO_CARRIER}")
    }
    /// Leaves all groups. What was asked for and waits for others ends, whatever comes of it.
    fn disconnect(&self) {}

    /// Whether all ops so far are done, whatever came of them: but for what leaves from queues that no stream of a plan has.
    fn is_idle(&self) -> bool {
        true
    }
    /// Where the device finds what lies in memory that ranks share with its host: see [`Device::share`].
    fn reach<T>(&self, host: *mut T) -> *mut T {
        host
    }

    /// `to` := `from`.
    fn copy<T: Pod>(&self, to: ViewMut<Self, T>, from: View<Self, T>);
    /// `to` := `value` everywhere.
    fn fill<T: Pod + Send + Sync>(&self, to: ViewMut<Self, T>, value: T);
    /// `to` := `from`, rounded to the nearest that `to` can store, ties to even; NaN stays NaN.
    fn convert(&self, to: StoredMut<Self>, from: Stored<Self>);
    /// `y` += `x`.
    fn add<E: Element>(&self, y: ViewMut<Self, E>, x: View<Self, E>);
    /// `y` *= `x`, elementwise.
    fn mul<E: Element>(&self, y: ViewMut<Self, E>, x: View<Self, E>);
    /// `y` *= `factor` everywhere.
    fn scale<E: Element>(&self, y: ViewMut<Self, E>, factor: f32);
    /// `y` := `alpha` `x` + `beta` `y`, elementwise.
    fn axpby<E: Element>(&self, alpha: f32, x: View<Self, E>, beta: f32, y: ViewMut<Self, E>);

    /// `c` (m, n) := or += `a` (m, k) `b` (k, n). A sum over k may begin with what `c` held or end with it.
    fn matmul<O: Element, E: Element>(&self, c: ViewMut<Self, O>, a: Matrix<Self, E>, b: Matrix<Self, E>, write: Write);
    /// `y` (rows, output) := `x` (rows, input) times the transpose of `weight` (output, input), plus `bias` (output) in
    /// every row; then what `then` says.
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
    /// Its vector-Jacobian product: `dx`, if wanted, := it, and `plus` added as [`Device::add`] does; `dgain` and `dbias`
    /// (width) := or += theirs.
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
    /// Its vector-Jacobian product: as of [`Device::layer_norm`].
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
    /// RMS norm of each of `heads` equal parts of each row: those of the first `heads` x width features, where the width is that
    /// of `gain`. As [`Device::rms_norm`]; `inverse` is (rows, heads).
    fn rms_norm_heads<E: Element>(
        &self,
        x: Strided<Self, E>,
        heads: usize,
        gain: View<Self, E>,
        y: StridedMut<Self, E>,
        inverse: ViewMut<Self, f32>,
        epsilon: f32,
    );
    /// Its vector-Jacobian product, in place: turns `dy` into the gradient of `x`. `dgain` (width) := or += its own, the sum
    /// over rows and heads.
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
    /// `table` (positions, head_dim) := of each position from `first` on, head_dim / 2 cosines, then as many sines, of the
    /// position, in f32, times each frequency of `rotary`; all times the factor that it has for them. Heads are of an even
    /// width, [`Device::HEAD_DIM_MAX`] at most.
    fn rotary_table(&self, rotary: &Rotary, first: usize, head_dim: usize, table: ViewMut<Self, f32>);
    /// Turns the first `heads` heads of each row of `x` in place: of each head, features i and i + head_dim / 2, x and y, become
    /// x cos - y sin and y cos + x sin, by cosine and sine i of row t % `length` of `table` (length, head_dim), where t is the
    /// number of the row of `x`. With `back`, by the negative angles: the vector-Jacobian product.
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
    /// Its vector-Jacobian product: `dx` (rows, 2 width) := it, given `dy` (rows, width).
    fn gate_backward<E: Element>(
        &self,
        kind: Nonlinearity,
        x: View<Self, E>,
        dy: View<Self, E>,
        dx: ViewMut<Self, E>,
        width: usize,
    );
    /// Causal attention of each token to itself and those before it in its sequence, or to as many as a window lets it see.
    /// For each head, `out` (tokens, heads head_dim) := softmax(q k^T / sqrt(head_dim)) v, where [`AttentionShape`] says which
    /// rows `q`, `k` and `v` have. `lse` (tokens, heads) takes the log-sum-exp of what the softmax is of. Scores may be of any
    /// finite size. What is not finite in a key or a value shows in all that see it, and may show in others of its sequence.
    fn attention<E: Element>(
        &self,
        shape: AttentionShape,
        q: Strided<Self, E>,
        k: Strided<Self, E>,
        v: Strided<Self, E>,
        out: ViewMut<Self, E>,
        lse: ViewMut<Self, f32>,
    );
    /// Its vector-Jacobian product where all tokens ask (`before` is 0): `dqkv` := it, each row the gradients of a token's
    /// queries, then of its keys, then of its values.
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
    /// [`Device::attention`] by the fused kernels of a library, where a spec says `attention: Cudnn`: all tokens ask (`before` is
    /// 0), and features are bf16. `lse` is kept in an order of the library's own, for [`Device::fused_attention_backward`]
    /// alone. `room` has [`AttentionShape::fused_bytes`], of any content.
    ///
    /// # Panics
    /// Where the device has none.
    #[allow(clippy::too_many_arguments, reason = "one argument for each tensor of the formula")]
    fn fused_attention<E: Element>(
        &self,
        _shape: AttentionShape,
        _q: Strided<Self, E>,
        _k: Strided<Self, E>,
        _v: Strided<Self, E>,
        _out: ViewMut<Self, E>,
        _lse: ViewMut<Self, f32>,
        _room: ViewMut<Self, u8>,
    ) {
        panic!("this device has no fused attention");
    }
    /// Its vector-Jacobian product, as [`Device::attention_backward`] gives it.
    ///
    /// # Panics
    /// Where the device has none.
    #[allow(clippy::too_many_arguments, reason = "one argument for each tensor of the formula")]
    fn fused_attention_backward<E: Element>(
        &self,
        _shape: AttentionShape,
        _q: Strided<Self, E>,
        _k: Strided<Self, E>,
        _v: Strided<Self, E>,
        _out: View<Self, E>,
        _lse: View<Self, f32>,
        _dout: View<Self, E>,
        _dqkv: ViewMut<Self, E>,
        _room: ViewMut<Self, u8>,
    ) {
        panic!("this device has no fused attention");
    }
    /// `out` (tokens, width) := rows of `table` (vocabulary, width) by id; plus, if there are `positions` (context, width),
    /// their rows by place in the sequence, of which there are whole ones of `length` tokens, at most the context.
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
    /// `loss` (rows) := log-sum-exp of each row of `logits` (rows, classes), kept in `lse` (rows), less the target's logit.
    /// Logits may be of any finite size.
    fn cross_entropy<E: Element>(
        &self,
        logits: View<Self, E>,
        targets: View<Self, u32>,
        loss: ViewMut<Self, f32>,
        lse: ViewMut<Self, f32>,
    );
    /// Its vector-Jacobian product: turns `logits` into their gradient.
    fn cross_entropy_backward<E: Element>(
        &self,
        logits: ViewMut<Self, E>,
        targets: View<Self, u32>,
        lse: View<Self, f32>,
        dloss: View<Self, f32>,
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
    /// `n.next_power_of_two() / 2` are summed before the others are added. Summand number `own` is what `to` holds, if one
    /// is; `source` is not asked for that, and gives each of the others any number of times. All are as long as `to`. They are
    /// stored as it is; a device whose ranks may be on several hosts takes them in another width as well, unless `to` is one
    /// of them.
    ///
    /// Sums are f32, each rounded once, and the last once more to what `to` stores: bits are those of this definition.
    fn reduce<'a>(
        &self,
        to: StoredMut<Self>,
        count: usize,
        own: Option<usize>,
        source: &dyn Fn(usize) -> Stored<'a, Self>,
        write: Write,
    );
    /// `to` (1) += the mean of `x`: its sum in f64, divided by its length.
    fn add_mean(&self, x: View<Self, f32>, to: ViewMut<Self, f64>);
    /// `to` (1) := the sum of squares, in f64.
    fn squares(&self, x: Stored<Self>, to: ViewMut<Self, f64>);
    /// `report` (1) := what `agreement` makes of the words of all ranks, (ranks, [`Agreement::values`]), and of `hyper` (1).
    fn agree(
        &self,
        agreement: &Agreement,
        all: View<Self, f64>,
        hyper: View<Self, HyperBlock>,
        report: ViewMut<Self, ReportBlock>,
    );
    /// [`Device::adamw`] by what the blocks say, with weight decay or without. Nothing at all where the report is not
    /// finite.
    #[allow(clippy::too_many_arguments, reason = "one argument for each tensor of the formula")]
    fn update(
        &self,
        decays: bool,
        hyper: View<Self, HyperBlock>,
        report: View<Self, ReportBlock>,
        weights: Weights<Self>,
        grads: Stored<Self>,
        m: StoredMut<Self>,
        v: StoredMut<Self>,
    );
    /// One AdamW step in f32, elementwise: its result does not depend on how a flat buffer is cut. What is stored as bf16
    /// is rounded once, after the step.
    fn adamw<'a>(
        &self,
        step: &AdamW,
        weights: impl Into<Weights<'a, Self>>,
        grads: impl Into<Stored<'a, Self>>,
        m: impl Into<StoredMut<'a, Self>>,
        v: impl Into<StoredMut<'a, Self>>,
    );
    /// The momentum of Muon (Jordan et al., 2024), elementwise and in f32, so that its result does not depend on how a flat
    /// buffer is cut. With g, the sums in `gradients` times the report's `grad_scale`: `m` := m + (1 - momentum) (g - m), and
    /// then `gradients` := g + momentum (m - g), Nesterov's direction, by `m` before it is rounded. Nothing at all where the
    /// report is not finite.
    fn momentum(
        &self,
        hyper: View<Self, HyperBlock>,
        report: View<Self, ReportBlock>,
        gradients: StoredMut<Self>,
        m: StoredMut<Self>,
    );
    /// `to` := `from` / max(sqrt(`square`), `epsilon`), where `square` (1) is what [`Device::squares`] has left. The divisor is
    /// f64, and its reciprocal is rounded to f32.
    fn normalize<E: Element>(&self, to: ViewMut<Self, E>, from: Stored<Self>, square: View<Self, f64>, epsilon: f64);
    /// One step along a `direction`, elementwise: p := p (1 - lr weight_decay) - lr `factor` `direction`. The factors of p and of
    /// the direction are worked out in f64 and rounded to f32. Parameters decay if `decays` is true. Nothing at all where the
    /// report is not finite. What is stored as bf16 is rounded once, after the step.
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
