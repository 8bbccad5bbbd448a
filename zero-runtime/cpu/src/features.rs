//! Features: the properties of this processor that decide bits, because kernels are chosen by them at run time: in
//! `simd`, in `product` and in the `gemm` crate. Never chooses one.

use super::product::Bf16Products;

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
        _ => Bf16Products::chosen().feature() == Some(name),
    }
}

#[cfg(not(target_arch = "x86_64"))]
fn is_there(name: &str) -> bool {
    Bf16Products::chosen().feature() == Some(name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use zero_core::device::names_of;

    #[test]
    fn what_is_found_is_told_by_name() {
        let told = names_of(&NAMES, found());
        let of_products: Vec<&str> = told.iter().copied().filter(|name| name.ends_with("_bf16")).collect();
        assert_eq!(of_products, Vec::from_iter(Bf16Products::chosen().feature()));
        #[cfg(target_arch = "x86_64")]
        assert_eq!(told.contains(&"fma"), std::is_x86_feature_detected!("fma"), "{told:?}");
    }
}
