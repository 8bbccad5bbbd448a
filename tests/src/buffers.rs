//! Numbers in the memory of any device, and the outputs and gradients of a layer in any width. Never compares.

use bytemuck::Pod;
use zero_core::device::{Buffer, Device, Element, Write, bf16};
use zero_core::layer::{Activation, Backward, Context, ElementOf, Forward, Grads, Layer, Shape};
use zero_core::view::View;
use zero_runtime::testing::Sample;

/// The tensors that a device has written, by name.
pub type Written = Vec<(&'static str, Vec<f32>)>;

/// `len` reproducible values, spread evenly over (-2, 2).
pub fn noise(len: usize, seed: u64) -> Vec<f32> {
    (0..len as u64).map(|i| 4.0 * zero_core::random::uniform(seed, i) as f32 - 2.0).collect()
}

/// These values, in memory of the device.
pub fn of<D: Device, T: Pod>(device: &D, values: &[T]) -> Buffer<D, T> {
    let mut buffer = Buffer::filled(device, values.len(), T::zeroed()).expect("memory for a few elements");
    device.stage(buffer.view_mut(), |staging| staging.copy_from_slice(values));
    buffer
}

/// These values, in memory of the device, each rounded.
pub fn stored<D: Device, E: Element>(device: &D, values: &[f32]) -> Buffer<D, E> {
    of(device, &values.iter().map(|&x| E::narrow(x)).collect::<Vec<_>>())
}

/// The values in a buffer.
pub fn values<D: Device, T: Pod>(device: &D, buffer: &Buffer<D, T>) -> Vec<T> {
    let mut values = vec![T::zeroed(); buffer.view().len()];
    device.read(buffer.view(), &mut values);
    values
}

/// The values in a buffer, as f32.
pub fn numbers<D: Device, E: Element>(device: &D, buffer: &Buffer<D, E>) -> Vec<f32> {
    values(device, buffer).into_iter().map(E::widen).collect()
}

/// The nearest values that bf16 can store, so that a layer reads the same numbers in every width.
fn rounded(values: Vec<f32>) -> Vec<f32> {
    values.into_iter().map(|x| bf16::narrow(x).widen()).collect()
}

/// Inputs for a layer: features in its width, or unchanged ids.
fn entering<S: Shape, X: Sample>(device: &S::Device) -> Buffer<S::Device, u8> {
    let cells = X::cells(2, S::TOKENS);
    if !X::DIFFERENTIABLE {
        return of(device, bytemuck::cast_slice(&cells));
    }
    let features: Vec<S::Compute> = cells.into_iter().map(|x| Element::narrow(bf16::narrow(x).widen())).collect();
    of(device, bytemuck::cast_slice(&features))
}

/// The output of a layer, the gradients of its parameters and, if its input is differentiable, that of its input.
/// Parameters, inputs and targets are the same on every device and in every width.
pub fn run<S: Shape, X: Sample, T: Sample, L: Layer<S, X>>(device: &S::Device) -> Written {
    // Small, because otherwise attention scores are so large that their last bits decide.
    let params = stored(device, &rounded(noise(L::PARAMS, 1).iter().map(|x| x / 4.0).collect()));
    let (x, targets) = (entering::<S, X>(device), of(device, &T::cells(3, S::TOKENS)));
    let y_len = S::TOKENS * L::Output::WIDTH;
    // A loss is f32 in every compute width.
    let is_loss = size_of::<ElementOf<S, L::Output>>() != size_of::<S::Compute>();
    let unwritten = |bytes: usize| of(device, &vec![u8::MAX; bytes]);
    let mut y = unwritten(y_len * size_of::<ElementOf<S, L::Output>>());
    let [mut saved, mut work] = [L::SAVED, L::WORKSPACE].map(unwritten);
    let mut grads = stored::<_, f32>(device, &vec![f32::NAN; L::PARAMS]);
    let mut dx = stored::<_, S::Compute>(device, &vec![f32::NAN; S::TOKENS * X::WIDTH]);
    let context = Context {
        device,
        sequences: S::SEQUENCES,
        length: S::LENGTH,
        earlier: &[],
        slots: 1,
        targets: targets.view().cast(),
    };
    let (params, input) = (params.view(), x.view().cast());
    let pass = Forward { params, x: input, y: y.view_mut().cast(), saved: saved.view_mut(), work: work.view_mut() };
    L::forward(&context, pass);
    let dy = rounded(noise(y_len, 4));
    let mut losses = stored::<_, f32>(device, if L::LOSSES_IN_BACKWARD { &dy } else { &[] });
    let (of_losses, of_features) = (stored::<_, f32>(device, &dy), stored::<_, S::Compute>(device, &dy));
    let pass = Backward {
        params,
        grads: Grads::new(grads.view_mut(), Write::Set),
        x: input,
        saved: saved.view(),
        dy: match (L::LOSSES_IN_BACKWARD, is_loss) {
            (true, _) => View::empty(),
            (false, true) => of_losses.view().cast(),
            (false, false) => of_features.view().cast(),
        },
        losses: losses.view_mut(),
        dx: X::DIFFERENTIABLE.then(|| dx.view_mut().cast()),
        work: work.view_mut(),
    };
    L::backward(&context, pass);
    let y = values(device, &y);
    let y = if is_loss { widened::<f32>(&y) } else { widened::<S::Compute>(&y) };
    if L::LOSSES_IN_BACKWARD {
        assert_eq!(numbers(device, &losses), y, "losses of the backward pass");
    }
    let mut written = vec![("y", y), ("grads", numbers(device, &grads))];
    written.extend(X::DIFFERENTIABLE.then(|| ("dx", numbers(device, &dx))));
    written
}

fn widened<E: Element>(bytes: &[u8]) -> Vec<f32> {
    bytes.chunks_exact(size_of::<E>()).map(|x| bytemuck::pod_read_unaligned::<E>(x).widen()).collect()
}
