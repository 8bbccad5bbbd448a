//! Tests of frequencies, against formulas worked out by hand and against their numbers.

use super::*;

/// Every `step`-th frequency of heads of `head_dim` features, and the factor of cosines and sines.
fn frequencies(base: f64, scaling: Scaling, head_dim: usize, step: usize) -> (Vec<f32>, f32) {
    let mut all = vec![f32::NAN; head_dim / 2];
    let factor = Rotary { base, scaling }.frequencies(&mut all);
    (all.into_iter().step_by(step).collect(), factor)
}

/// To a few units in the last place of an f32: powers may be off by one.
#[track_caller]
fn assert_near(found: &[f32], expected: &[f64]) {
    assert_eq!(found.len(), expected.len());
    for (i, (found, expected)) in found.iter().zip(expected).enumerate() {
        let error = (f64::from(*found) / expected - 1.0).abs();
        assert!(error < 3e-7, "frequency {i}: found {found}, expected {expected}");
    }
}

const LLAMA3: Scaling =
    Scaling::Llama3 { factor: 8.0, low_frequency_factor: 1.0, high_frequency_factor: 4.0, original_length: 8192 };

const YARN: Scaling = Scaling::Yarn {
    factor: 4.0,
    original_length: 512,
    beta_fast: 32.0,
    beta_slow: 1.0,
    attention_factor: None,
    truncate: true,
};

/// 10000^(-2i/n): Su et al., 2021, section 3.4.2.
#[test]
fn plain_frequencies_are_powers_of_the_base() {
    let (found, factor) = frequencies(10_000.0, Scaling::None, 128, 16);
    assert_near(&found, &[1.0, 0.1, 0.01, 0.001]);
    assert_eq!(factor, 1.0);
    let (found, _) = frequencies(500_000.0, Scaling::None, 6, 1);
    assert_near(&found, &[1.0, 500_000f64.powf(-1.0 / 3.0), 500_000f64.powf(-2.0 / 3.0)]);
}

#[test]
fn linear_scaling_divides_them_all() {
    let (found, factor) = frequencies(10_000.0, Scaling::Linear { factor: 4.0 }, 16, 2);
    assert_near(&found, &[0.25, 0.025, 0.0025, 0.000_25]);
    assert_eq!(factor, 1.0);
}

/// Of Llama 3.1: pairs that turn more than 4 times over 8192 tokens stay, those that turn less than once are divided by
/// 8. Pair 32 is in between: it turns 8192 x 500000^(-1/2) / 2 pi = 1.8438 times, so that (1.8438 - 1) / (4 - 1) of it
/// stays.
#[test]
fn llama3_scaling_lowers_what_turns_slowly() {
    let (found, factor) = frequencies(500_000.0, LLAMA3, 128, 8);
    let plain = |pair: i32| 500_000f64.powf(-f64::from(pair) / 64.0);
    let turns = 8192.0 * plain(32) / (2.0 * PI);
    assert!((turns - 1.8438).abs() < 1e-4);
    let kept = (turns - 1.0) / 3.0;
    let between = plain(32) * (kept + (1.0 - kept) / 8.0);
    let (fast, slow) = ([0, 8, 16, 24].map(plain), [40, 48, 56].map(|pair| plain(pair) / 8.0));
    assert_near(&found, &[fast[0], fast[1], fast[2], fast[3], between, slow[0], slow[1], slow[2]]);
    assert_near(&found[4..5], &[5.248_460_2e-4]);
    assert_eq!(factor, 1.0);
}

/// Peng et al., 2023, section 3.2 and equation 22: of 16 features, the pair that turns r times over 512 tokens is 16
/// ln(512 / 2 pi r) / (2 ln 10000), 0.81 for 32 turns and 3.82 for one. So pair 0 stays, pairs from 4 on are divided by
/// 4, and pairs 1 to 3 by an intermediate factor.
#[test]
fn yarn_scales_along_a_ramp() {
    let (found, factor) = frequencies(10_000.0, YARN, 16, 1);
    let plain = |pair: i32| 10_000f64.powf(-f64::from(pair) / 8.0);
    let of = |pair: i32, lowered: f64| plain(pair) * (1.0 - lowered + lowered / 4.0);
    let ramp = [0.0, 0.25, 0.5, 0.75, 1.0, 1.0, 1.0, 1.0];
    let expected: Vec<_> = ramp.iter().zip(0..).map(|(&lowered, pair)| of(pair, lowered)).collect();
    assert_near(&found, &expected);
    assert_near(&found[1..4], &[0.256_935_06, 0.0625, 0.013_834_965]);
    assert_near(&[factor], &[0.1 * 4f64.ln() + 1.0]);
    assert_near(&[factor], &[1.138_629_4]);
}

#[test]
fn yarn_as_it_is_told() {
    let Scaling::Yarn { factor, original_length, beta_fast, beta_slow, .. } = YARN else { unreachable!() };
    let told = |attention_factor, truncate| {
        let scaling = Scaling::Yarn { factor, original_length, beta_fast, beta_slow, attention_factor, truncate };
        frequencies(10_000.0, scaling, 16, 1)
    };
    let (between, factor) = told(Some(1.5), false);
    assert_near(&between[..4], &[1.0, 0.301_406_47, 0.070_398_636, 0.014_383_359]);
    assert_eq!(factor, 1.5);
    let one =
        Scaling::Yarn { factor: 1.0, original_length: 4, beta_fast, beta_slow, attention_factor: None, truncate: true };
    assert_eq!(frequencies(10_000.0, one, 4, 1), (frequencies(10_000.0, Scaling::None, 4, 1).0, 1.0));
}

#[test]
fn numbers_that_give_no_frequencies_are_told() {
    let flaw = |base: f64, scaling: Scaling| Rotary { base, scaling }.flaw();
    for scaling in [Scaling::None, Scaling::Linear { factor: 0.5 }, LLAMA3, YARN] {
        assert_eq!(flaw(10_000.0, scaling), None);
        for base in [1.0, -2.0, f64::NAN, f64::INFINITY] {
            assert_eq!(flaw(base, scaling), Some("`base` is not above 1"));
        }
    }
    assert_eq!(flaw(2.0, Scaling::Linear { factor: 0.0 }), Some("`factor` is not above 0"));
    let llama3 = |low, high, original_length| {
        let (low_frequency_factor, high_frequency_factor) = (low, high);
        flaw(2.0, Scaling::Llama3 { factor: 8.0, low_frequency_factor, high_frequency_factor, original_length })
    };
    assert!(llama3(4.0, 4.0, 8).unwrap().contains("`low_frequency_factor`"));
    assert!(llama3(1.0, 4.0, 0).unwrap().contains("`original_length`"));
    let yarn = |factor, beta_slow, attention_factor, original_length| {
        let beta_fast = 32.0;
        flaw(2.0, Scaling::Yarn { factor, original_length, beta_fast, beta_slow, attention_factor, truncate: true })
    };
    assert!(yarn(4.0, 33.0, None, 8).unwrap().contains("`beta_slow`"));
    assert!(yarn(4.0, 1.0, Some(f64::NAN), 8).unwrap().contains("`attention_factor`"));
    assert!(yarn(4.0, 1.0, None, 0).unwrap().contains("`original_length`"));
    assert_eq!(yarn(f64::NAN, 1.0, Some(1.0), 8), Some("`factor` is not above 0"));
}
