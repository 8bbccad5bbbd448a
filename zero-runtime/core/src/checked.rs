//! Checked: arithmetic on sizes in memory, in constants. Never wraps around: a size that is too large to count stops the build.
//! Never knows what is counted.

use zero_plan::Message;
use zero_plan::lines::LINE_BYTES;

/// The product of `factors`, for the constants of a layer.
///
/// # Panics
/// Z0210 if a `usize` cannot hold it; in a constant, that is a build error.
#[track_caller]
pub const fn product(factors: &[usize]) -> usize {
    let (mut product, mut i) = (1usize, 0);
    while i < factors.len() {
        product = match product.checked_mul(factors[i]) {
            Some(product) => product,
            None => too_large(factors, " x "),
        };
        i += 1;
    }
    product
}

/// The sum of `terms`, for the constants of a layer.
///
/// # Panics
/// Z0210 if a `usize` cannot hold it; in a constant, that is a build error.
#[track_caller]
pub const fn sum(terms: &[usize]) -> usize {
    let (mut sum, mut i) = (0usize, 0);
    while i < terms.len() {
        sum = match sum.checked_add(terms[i]) {
            Some(sum) => sum,
            None => too_large(terms, " + "),
        };
        i += 1;
    }
    sum
}

#[track_caller]
const fn too_large(numbers: &[usize], operator: &str) -> ! {
    let mut message = Message::new().text("[Z0210] a size is too large to count in ");
    message = message.number(usize::BITS as usize).text(" bits: ");
    let mut i = 0;
    while i < numbers.len() {
        message = message.text(if i > 0 { operator } else { "" }).number(numbers[i]);
        i += 1;
    }
    message = message.text("; lower the widths of the layer, or the sequences or tokens of a micro-batch");
    panic!("{}", message.as_str());
}

/// Bytes of `len` elements in the memory that a layer saves or works in: whole cache lines.
///
/// # Panics
/// Z0210 if a `usize` cannot hold it; in a constant, that is a build error.
#[track_caller]
pub const fn bytes<T>(len: usize) -> usize {
    sum(&[product(&[len, size_of::<T>()]), LINE_BYTES - 1]) / LINE_BYTES * LINE_BYTES
}

/// The larger of two sizes, in constants.
pub const fn max(a: usize, b: usize) -> usize {
    if a > b { a } else { b }
}

/// The first of two faults.
pub const fn either(first: Option<Message>, second: Option<Message>) -> Option<Message> {
    if first.is_some() { first } else { second }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_sizes_are_counted() {
        assert_eq!(product(&[]), 1);
        assert_eq!(product(&[3, 5, usize::MAX / 15]), usize::MAX);
        assert_eq!(sum(&[]), 0);
        assert_eq!(sum(&[usize::MAX - 2, 1, 1]), usize::MAX);
    }

    #[test]
    #[should_panic(expected = "[Z0210] a size is too large to count in 64 bits: 2 x 9223372036854775808 x 3;")]
    fn a_product_beyond_them_is_refused() {
        product(&[2, 1 << 63, 3]);
    }

    #[test]
    #[should_panic(expected = "[Z0210] a size is too large to count in 64 bits: 1 + 18446744073709551615;")]
    fn a_sum_beyond_them_is_refused() {
        sum(&[1, usize::MAX]);
    }
}
