//! Rotary positions of the naive device: angles in f64, pair by pair. Shares no sums with the processor's device.

use zero_core::device::Rotary;

/// Cosines, then sines, of each position from `first` on.
pub(super) fn table(rotary: &Rotary, first: usize, head_dim: usize, table: &mut [f32]) {
    let mut frequencies = vec![0.0; head_dim / 2];
    let factor = rotary.frequencies(&mut frequencies);
    for (i, row) in table.chunks_mut(head_dim).enumerate() {
        for (pair, frequency) in frequencies.iter().enumerate() {
            let (sin, cos) = f64::from((first + i) as f32 * frequency).sin_cos();
            row[pair] = cos as f32 * factor;
            row[pair + head_dim / 2] = sin as f32 * factor;
        }
    }
}

/// Turns the first heads of a row by a row of the table.
pub(super) fn rotate(row: &mut [f32], heads: usize, angles: &[f32], back: bool) {
    let (head_dim, half) = (angles.len(), angles.len() / 2);
    for head in row[..heads * head_dim].chunks_mut(head_dim) {
        for i in 0..half {
            let (cos, sin) = (angles[i], if back { -angles[half + i] } else { angles[half + i] });
            [head[i], head[half + i]] = [head[i] * cos - head[half + i] * sin, head[half + i] * cos + head[i] * sin];
        }
    }
}
