//! A classifier that fails as requested. `FAULT` chooses the fault: on rank 1 in step 3 (`nan`, `zero`, `class`, `panic`, `exit`,
//! `report`, `leave`, `hold`, `told`, `busy`), before it joins (`early`, `late`, `absent`), after its last step (`held-out`), in
//! step 1 (`busy at first`), or on all ranks from the first step (`classes`); with `nothing-held-out` there is no held-out data.
//! With `THREADS` set, ranks are threads.

use std::process::{ExitCode, exit};
use std::thread::sleep;
use std::time::Duration;

use zero_runtime::author::{Backward, Context, Entry, Forward, Init, Shape, Tensors};
use zero_runtime::data::{Dataset, Draw};
use zero_runtime::prelude::*;

const FAULTY_RANK: u64 = 1;
/// Counted from 0.
const FAULTY_STEP: u64 = 2;
/// More than the ranks, so that each rank owns a part of every unit.
const WIDTH: usize = 4;
/// More than lies outside the arena of any rank.
const HELD_BYTES: usize = 100 << 20;
const SEQUENCES: u64 = OnProcesses::SEQUENCES as u64;

#[zero(stage = 3, ranks = 3, sequences = 2, length = 4)]
struct OnProcesses {
    power: Power<WIDTH>,
    hidden: Linear<WIDTH, 16>,
    act: Relu,
    head: LmHead<16, 2>,
}

#[zero(stage = 3, ranks = 3, sequences = 2, length = 4, transport = Local)]
struct OnThreads {
    power: Power<WIDTH>,
    hidden: Linear<WIDTH, 16>,
    act: Relu,
    head: LmHead<16, 2>,
}

/// y = x^p with one learned p for each feature. At x = 0 it is finite, but its derivative by p, y ln x, is not a number.
struct Power<const W: usize>;

impl<const W: usize> Entry for Power<W> {
    type Input = Features<W>;
}

impl<S: Shape<Device = Cpu, Compute = f32>, const W: usize> Layer<S, Features<W>> for Power<W> {
    type Output = Features<W>;
    const PARAMS: usize = W;
    const SAVED: usize = 0;
    const WORKSPACE: usize = 0;

    fn tensors(out: &mut Tensors) {
        out.add("exponent", &[W], Init::Ones);
    }

    fn forward(_: &Context<Cpu>, pass: Forward<S, Features<W>>) {
        let exponents = pass.params.as_slice().iter().cycle();
        for ((y, x), exponent) in pass.y.into_slice().iter_mut().zip(pass.x.as_slice()).zip(exponents) {
            *y = x.powf(*exponent);
        }
    }

    /// The first layer of a model: no other layer needs `dx`.
    fn backward(cx: &Context<Cpu>, pass: Backward<S, Features<W>>) {
        let mut grads = [0.0; W];
        let exponents = pass.params.as_slice();
        for (i, (x, dy)) in pass.x.as_slice().iter().zip(pass.dy.as_slice()).enumerate() {
            grads[i % W] += dy * x.powf(exponents[i % W]) * x.ln();
        }
        pass.grads.put(cx.device, grads.as_slice().into());
    }
}

/// Which of the first two numbers is the larger.
struct Pairs {
    fault: String,
}

impl Dataset for Pairs {
    type Input = Features<WIDTH>;
    type Target = Tokens;

    fn training(&self, draw: Draw, input: &mut [f32], targets: &mut [u32]) {
        for (row, (numbers, target)) in input.chunks_exact_mut(WIDTH).zip(&mut *targets).enumerate() {
            let number = |i: usize| 0.5 + Draw { index: draw.hash() ^ i as u64, ..draw }.below(1000) as f32 / 1000.0;
            numbers.iter_mut().enumerate().for_each(|(i, to)| *to = number(WIDTH * row + i));
            *target = u32::from(numbers[1] > numbers[0]);
        }
        if self.fault == "classes" {
            targets.fill(2);
        }
        let step = if self.fault == "busy at first" { 0 } else { FAULTY_STEP };
        if (draw.index / SEQUENCES, draw.step) == (FAULTY_RANK, step) {
            self.strike(input, targets);
        }
    }

    fn held_out(&self, index: usize, input: &mut [f32], targets: &mut [u32]) {
        let index = index as u64;
        self.training(Draw { seed: 0, step: u64::MAX, index }, input, targets);
        // Ranks take held-out sequences in turn.
        if self.fault == "held-out" && index == FAULTY_RANK {
            input[0] = f32::NAN;
        }
    }

    fn held_out_count(&self) -> usize {
        if self.fault == "nothing-held-out" { 0 } else { 12 }
    }

    fn resident_bytes(&self) -> usize {
        // The fault occurs on its rank once for each sequence.
        if self.fault == "told" { SEQUENCES as usize * HELD_BYTES } else { 0 }
    }
}

impl Pairs {
    fn strike(&self, input: &mut [f32], targets: &mut [u32]) {
        match self.fault.as_str() {
            "nan" => input[0] = f32::NAN,
            "zero" => input[0] = 0.0,
            "class" => targets[2] = 300,
            "panic" => panic!("as told"),
            "exit" => exit(7),
            "report" => {
                eprintln!("error[Z9999]: my own words");
                exit(2);
            }
            "leave" => exit(0),
            "busy" | "busy at first" => sleep(Duration::MAX),
            "hold" | "told" => std::mem::forget(std::hint::black_box(vec![1_u8; HELD_BYTES])),
            _ => {}
        }
    }
}

fn main() -> ExitCode {
    let variable = |name| std::env::var(name).unwrap_or_default();
    let fault = variable("FAULT");
    if variable("RANK") == FAULTY_RANK.to_string() {
        match fault.as_str() {
            "early" => return ExitCode::from(9),
            "late" => sleep(Duration::from_millis(300)),
            "absent" => sleep(Duration::MAX),
            _ => {}
        }
    }
    match variable("THREADS").as_str() {
        "" => zero_runtime::main_with::<OnProcesses>(Pairs { fault }),
        _ => zero_runtime::main_with::<OnThreads>(Pairs { fault }),
    }
}
