//! The functions that the models need, of basic operations alone.

/// e to the power of `-x`, for `x` of 0 and more. Within 1e-13 of it.
pub(crate) fn exp_of_minus(x: f64) -> f64 {
    // Below the least draw that anything is compared with by far.
    if x >= 64.0 {
        return 0.0;
    }
    // e^-x = (e^(-x / 1024))^1024, the inner one by its series.
    let y = x / 1024.0;
    let mut result =
        1.0 - y * (1.0 - y / 2.0 * (1.0 - y / 3.0 * (1.0 - y / 4.0 * (1.0 - y / 5.0))));
    for _ in 0..10 {
        result *= result;
    }
    result
}

/// Cosine and sine of so many turns. Within 1e-7 of them.
pub(crate) fn cos_sin(turns: f64) -> (f64, f64) {
    // To an eighth of a turn about the nearest quarter.
    let turns = turns - turns.floor();
    let quarter = (turns * 4.0 + 0.5).floor();
    let x = (turns - quarter / 4.0) * std::f64::consts::TAU;
    let square = x * x;
    let series = |of: [f64; 5]| of.iter().rev().fold(0.0, |sum, term| sum * square + term);
    let sine = x * series([1.0, -1.0 / 6.0, 1.0 / 120.0, -1.0 / 5_040.0, 1.0 / 362_880.0]);
    let cosine = series([1.0, -0.5, 1.0 / 24.0, -1.0 / 720.0, 1.0 / 40_320.0]);
    match quarter as u32 % 4 {
        0 => (cosine, sine),
        1 => (-sine, cosine),
        2 => (-cosine, -sine),
        _ => (sine, -cosine),
    }
}

/// The factor of so many hundredths of a decibel.
pub(crate) fn factor_of_decibels(hundredths: i32) -> f64 {
    /// 10^0.001.
    const HUNDREDTH: f64 = 1.002_305_238_077_899_6;
    let power = to_the_power(HUNDREDTH, hundredths.unsigned_abs());
    if hundredths < 0 { 1.0 / power } else { power }
}

/// The natural logarithm of `x`, which is above zero and no subnormal number. Within 1e-12 of it.
pub(crate) fn ln(x: f64) -> f64 {
    // x = m 2^e with m from the root of a half to the root of two; ln m = 2 artanh((m - 1) / (m + 1)).
    let bits = x.to_bits();
    let mut exponent = ((bits >> 52) & 0x7ff) as i32 - 1023;
    let mut m = f64::from_bits((bits & 0x000f_ffff_ffff_ffff) | 0x3ff0_0000_0000_0000);
    if m > std::f64::consts::SQRT_2 {
        m /= 2.0;
        exponent += 1;
    }
    let z = (m - 1.0) / (m + 1.0);
    let square = z * z;
    let mut series = 0.0;
    for odd in [15.0, 13.0, 11.0, 9.0, 7.0, 5.0, 3.0, 1.0] {
        series = series * square + 1.0 / odd;
    }
    f64::from(exponent) * std::f64::consts::LN_2 + 2.0 * z * series
}

/// Decibels of a factor above zero.
pub(crate) fn decibels(factor: f64) -> f64 {
    ln(factor) * (10.0 / std::f64::consts::LN_10)
}

/// The factor of so many decibels.
pub(crate) fn factor(decibels: f64) -> f64 {
    let power = decibels * (std::f64::consts::LN_10 / 10.0);
    if power < 0.0 { exp_of_minus(-power) } else { 1.0 / exp_of_minus(power) }
}

/// By squaring.
pub(crate) fn to_the_power(mut base: f64, mut exponent: u32) -> f64 {
    let mut result = 1.0;
    while exponent > 0 {
        if exponent & 1 == 1 {
            result *= base;
        }
        base *= base;
        exponent >>= 1;
    }
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn they_are_what_a_mathematical_library_says() {
        for step in 0..4000 {
            let x = f64::from(step) / 50.0;
            assert!((exp_of_minus(x) - (-x).exp()).abs() < 1e-13, "e^-{x}");
            let (cosine, sine) = cos_sin(x);
            let angle = x * std::f64::consts::TAU;
            assert!(
                (cosine - angle.cos()).abs() < 1e-7 && (sine - angle.sin()).abs() < 1e-7,
                "{x}"
            );
        }
        for tenths in [-1500, -300, -1, 0, 1, 10, 300, 1043, 10_000] {
            let exact = 10f64.powf(f64::from(tenths) / 1000.0);
            assert!((factor_of_decibels(tenths) / exact - 1.0).abs() < 1e-10, "{tenths}");
        }
        for step in -1300..1300 {
            let exact = f64::from(step) / 10.0;
            let factor = factor(exact);
            assert!((factor / 10f64.powf(exact / 10.0) - 1.0).abs() < 1e-9, "{exact} dB");
            assert!((decibels(factor) - 10.0 * factor.log10()).abs() < 1e-10, "{factor}");
            assert!((ln(factor) - factor.ln()).abs() < 1e-11, "{factor}");
        }
    }
}
