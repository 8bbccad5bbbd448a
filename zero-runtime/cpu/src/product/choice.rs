//! Choice: the instructions that multiply bf16 on this machine: those that a run asks for, or the fastest of its kind of
//! processor, by a table. Never measures: a measurement could choose others tomorrow, and so other bits.

use std::sync::OnceLock;

#[cfg(target_arch = "x86_64")]
use super::{amx, avx512};

/// Instructions that multiply bf16.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bf16Products {
    /// AMX-BF16: tiles of 16 x 16 sums.
    Amx,
    /// AVX512-BF16: vectors of 16 sums of two products.
    Avx512,
    /// Those of f32, for numbers that are widened when they are packed. Every processor has them.
    Widened,
}

static CHOSEN: OnceLock<Bf16Products> = OnceLock::new();

impl Bf16Products {
    /// All of them, those that do most in one instruction first.
    pub const ALL: [Self; 3] = [Self::Amx, Self::Avx512, Self::Widened];

    /// The name by which arguments call them.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Amx => "amx",
            Self::Avx512 => "avx512",
            Self::Widened => "widened",
        }
    }

    /// The name of the processor's feature; none for those that every processor has.
    pub const fn feature(self) -> Option<&'static str> {
        match self {
            Self::Amx => Some("amx_bf16"),
            Self::Avx512 => Some("avx512_bf16"),
            Self::Widened => None,
        }
    }

    /// Whether this process may use them.
    pub fn is_there(self) -> bool {
        match self {
            #[cfg(target_arch = "x86_64")]
            Self::Amx => amx::is_there(),
            #[cfg(target_arch = "x86_64")]
            Self::Avx512 => avx512::is_there(),
            #[cfg(not(target_arch = "x86_64"))]
            Self::Amx | Self::Avx512 => false,
            Self::Widened => true,
        }
    }

    /// Those that this process multiplies with.
    pub fn chosen() -> Self {
        *CHOSEN.get_or_init(|| Processor::this().fastest(Self::is_there))
    }

    /// Makes this process multiply with these from now on.
    ///
    /// # Panics
    /// If they are not there, or it has multiplied with others.
    pub fn choose(self) {
        assert!(self.is_there(), "this processor has no `{}`", self.name());
        self.choose_in(&CHOSEN);
    }

    fn choose_in(self, chosen: &OnceLock<Self>) {
        let chosen = *chosen.get_or_init(|| self);
        assert!(chosen == self, "`{}` has multiplied already", chosen.name());
    }
}

/// A kind of processor, as the instruction `cpuid` numbers it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Processor {
    vendor: [u8; 12],
    family: u32,
    model: u32,
}

/// Kinds of processors on which widened numbers are multiplied faster than by AVX512-BF16. Other kinds multiply fastest by the first of
/// [`Bf16Products::ALL`] that they have.
const WIDENING: [(&[u8; 12], u32, &[u32]); 1] = [
    // Cooper Lake, Sapphire, Emerald and Granite Rapids, and cores like theirs in Alder Lake: `vdpbf16ps` has half the rate of a
    // multiply-add in f32, as was measured on Emerald Rapids.
    (b"GenuineIntel", 6, &[0x55, 0x8f, 0x97, 0x9a, 0xad, 0xae, 0xcf]),
];

impl Processor {
    #[cfg(target_arch = "x86_64")]
    fn this() -> Self {
        use core::arch::x86_64::__cpuid;
        let (vendor, kind) = (__cpuid(0), __cpuid(1).eax);
        let mut name = [0; 12];
        for (to, part) in name.chunks_exact_mut(4).zip([vendor.ebx, vendor.edx, vendor.ecx]) {
            to.copy_from_slice(&part.to_le_bytes());
        }
        Self::of(name, kind)
    }

    #[cfg(not(target_arch = "x86_64"))]
    fn this() -> Self {
        Self::default()
    }

    /// The kind that leaf 1 of `cpuid` numbers in eax.
    fn of(vendor: [u8; 12], kind: u32) -> Self {
        let bits = |first: u32, count: u32| kind >> first & ((1 << count) - 1);
        let (family, model) = (bits(8, 4), bits(4, 4));
        Self {
            vendor,
            family: if family == 0xf { family + bits(20, 8) } else { family },
            model: if matches!(family, 0x6 | 0xf) { model + (bits(16, 4) << 4) } else { model },
        }
    }

    /// The fastest of the instructions that `is_there` allows.
    fn fastest(self, is_there: impl Fn(Bf16Products) -> bool) -> Bf16Products {
        let widens = WIDENING.iter().any(|(vendor, family, models)| {
            (self.vendor, self.family) == (**vendor, *family) && models.contains(&self.model)
        });
        let mut order = Bf16Products::ALL.into_iter().filter(|&one| !(widens && one == Bf16Products::Avx512));
        order.find(|&one| is_there(one)).unwrap_or(Bf16Products::Widened)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intel_widens_where_it_has_no_matrix_unit() {
        const INTEL: [u8; 12] = *b"GenuineIntel";
        const AMD: [u8; 12] = *b"AuthenticAMD";
        // Emerald Rapids, and AMD's Genoa, as their `cpuid` says.
        let (rapids, genoa) = (Processor::of(INTEL, 0xc06f2), Processor::of(AMD, 0xa10f11));
        assert_eq!((rapids.family, rapids.model, genoa.family, genoa.model), (6, 0xcf, 0x19, 0x11));
        let of = |processor: Processor, has: &[Bf16Products]| processor.fastest(|one| has.contains(&one));
        use Bf16Products::{Amx, Avx512, Widened};
        for (processor, has, expected) in [
            (rapids, &[Amx, Avx512, Widened][..], Amx),
            (rapids, &[Avx512, Widened], Widened),
            (genoa, &[Avx512, Widened], Avx512),
            (genoa, &[Widened], Widened),
            (Processor { vendor: INTEL, ..genoa }, &[Avx512, Widened], Avx512),
            (Processor::default(), &[Avx512, Widened], Avx512),
        ] {
            assert_eq!(of(processor, has), expected, "{processor:?}");
        }
    }

    #[test]
    fn what_is_chosen_is_there() {
        assert!(Bf16Products::chosen().is_there());
        Bf16Products::chosen().choose();
    }

    #[test]
    #[should_panic(expected = "`avx512` has multiplied already")]
    fn a_choice_is_not_changed() {
        Bf16Products::Widened.choose_in(&OnceLock::from(Bf16Products::Avx512));
    }
}
