//! Features: the properties of this processor that decide bits, because kernels are chosen by them at run time: in
//! `simd`, in `product` and in the `gemm` crate. Never chooses one.

use super::product::instructions;

/// The features that are looked up, each a bit of [`found`].
pub const NAMES: [&str; 6] = ["fma", "avx512f", "x86-64-v3", "x86-64-v4", "avx512_bf16", "amx_bf16"];

/// The features that this processor has; of instructions for bf16 products, those that products use.
pub fn found() -> u64 {
    let bits = NAMES.iter().enumerate().map(|(bit, name)| u64::from(is_there(name)) << bit);
    bits.sum()
}

#[cfg(target_arch = "x86_64")]
fn is_there(name: &str) -> bool {
    match name {
        "fma" => std::is_x86_feature_detected!("fma"),
        "avx512f" => std::is_x86_feature_detected!("avx512f"),
        "x86-64-v3" => pulp::x86::V3::try_new().is_some(),
        "x86-64-v4" => pulp::x86::V4::try_new().is_some(),
        _ => instructions() == name,
    }
}

#[cfg(not(target_arch = "x86_64"))]
fn is_there(name: &str) -> bool {
    instructions() == name
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_found_is_told_by_name() {
        let told: Vec<&str> = (0..NAMES.len()).filter(|bit| found() >> bit & 1 == 1).map(|bit| NAMES[bit]).collect();
        assert_eq!(told.contains(&instructions()), instructions() != "widened to f32", "{told:?}");
        #[cfg(target_arch = "x86_64")]
        assert_eq!(told.contains(&"fma"), std::is_x86_feature_detected!("fma"), "{told:?}");
    }
}
