//! Sums of rows.

use zero_core::device::{Device, Element, Write};

use super::{Case, How, MARGIN, Results, Tensor, check, noise};

/// For sums of some thousand rows.
const LONG: How = How::Near(1e-5);

struct Sums {
    rows: usize,
    width: usize,
    start: usize,
}

impl Case for Sums {
    fn run<D: Device, E: Element>(&self, device: &D) -> Results {
        let x = Tensor::<D, E>::new(device, &noise(self.rows * self.width, 1), self.start);
        let run = |write| {
            let before = if write == Write::Set { vec![f32::NAN; self.width] } else { noise(self.width, 2) };
            let mut out = Tensor::<D, f32>::new(device, &before, MARGIN);
            device.sum_rows(x.view(), out.view_mut(), write);
            (format!("{} x {}, {write:?}", self.rows, self.width), LONG, out.values(device))
        };
        [Write::Set, Write::Add].map(run).into()
    }
}

/// One chunk, and many; one tile, and two; lanes from one to a warp.
#[test]
fn sums_of_rows_agree() {
    for (rows, width, start) in [(1, 1, 0), (17, 8, 0), (65, 33, MARGIN), (1500, 256, 0), (129, 300, 0), (5000, 3, 0)] {
        check(&Sums { rows, width, start });
    }
}
