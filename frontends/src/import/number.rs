//! Plain decimals, fast.

/// A decimal of at most 18 digits: `mantissa · 10^exponent`.
pub(super) struct Plain {
    pub negative: bool,
    pub mantissa: u64,
    exponent: i32,
    /// Whether there was neither point nor exponent.
    pub int: bool,
}

/// Most digits whose value surely fits an `i64`.
const MAX_DIGITS: usize = 18;

/// Powers of ten that a double holds exactly.
const POWERS: [f64; 23] = [
    1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18,
    1e19, 1e20, 1e21, 1e22,
];

/// Whether a literal ends before this byte.
fn ends(b: u8) -> bool {
    matches!(b, b',' | b']' | b'[' | b' ' | b'\n' | b'\t' | b'\r')
}

/// Length of the literal at the start of `text`.
pub(super) fn token_len(text: &[u8]) -> usize {
    text.iter().position(|&b| ends(b)).unwrap_or(text.len())
}

/// The value of eight digits, if these are eight digits.
///
/// All of them at once, as in Lemire, "Number Parsing at a Gigabyte per Second" (2021), section 5.
#[inline]
fn eight_digits(text: &[u8]) -> Option<u64> {
    let word = u64::from_le_bytes(*text.first_chunk()?);
    let digits = word ^ 0x3030_3030_3030_3030;
    // A byte is a digit if it is below ten; adding 0x76 carries into its highest bit otherwise.
    if (digits | digits.wrapping_add(0x7676_7676_7676_7676)) & 0x8080_8080_8080_8080 != 0 {
        return None;
    }
    let pairs = digits.wrapping_mul(10).wrapping_add(digits >> 8);
    let even = (pairs & 0x0000_00FF_0000_00FF).wrapping_mul(0x000F_4240_0000_0064);
    let odd = (pairs >> 16 & 0x0000_00FF_0000_00FF).wrapping_mul(0x0000_2710_0000_0001);
    Some(even.wrapping_add(odd) >> 32)
}

/// Adds the digits at `text[i..]` to `mantissa`; returns the place behind them.
#[inline]
fn digits(text: &[u8], mut i: usize, mantissa: &mut u64) -> usize {
    while let Some(n) = eight_digits(&text[i..]) {
        *mantissa = mantissa.wrapping_mul(100_000_000).wrapping_add(n);
        i += 8;
    }
    while let Some(&b) = text.get(i)
        && b.is_ascii_digit()
    {
        *mantissa = mantissa.wrapping_mul(10).wrapping_add(u64::from(b - b'0'));
        i += 1;
    }
    i
}

impl Plain {
    /// Reads one at the start of `text`, and gives its length; `None` for anything else.
    #[inline]
    pub(super) fn read(text: &[u8]) -> Option<(Plain, usize)> {
        let negative = text.first() == Some(&b'-');
        let mut p = Plain { negative, mantissa: 0, exponent: 0, int: true };
        let start = usize::from(negative);
        let mut i = start;
        // Before a point there are few digits.
        while let Some(&b) = text.get(i)
            && b.is_ascii_digit()
        {
            p.mantissa = p.mantissa.wrapping_mul(10).wrapping_add(u64::from(b - b'0'));
            i += 1;
        }
        let mut count = i - start;
        if count == 0 {
            return None;
        }
        if text.get(i) == Some(&b'.') {
            p.int = false;
            let point = i + 1;
            i = digits(text, point, &mut p.mantissa);
            count += i - point;
            p.exponent = -((i - point).min(MAX_DIGITS + 1) as i32);
        }
        if count > MAX_DIGITS {
            return None;
        }
        if let Some(b'e' | b'E') = text.get(i) {
            p.int = false;
            i += 1;
            let down = text.get(i) == Some(&b'-');
            i += usize::from(matches!(text.get(i), Some(b'+' | b'-')));
            let (mut e, start) = (0i32, i);
            while let Some(b @ b'0'..=b'9') = text.get(i) {
                e = e.saturating_mul(10).saturating_add(i32::from(b - b'0'));
                i += 1;
            }
            if i == start {
                return None;
            }
            p.exponent = p.exponent.saturating_add(if down { -e } else { e });
        }
        match text.get(i) {
            Some(&b) if !ends(b) => None,
            _ => Some((p, i)),
        }
    }

    /// The value where one rounding gives it: both mantissa and power are exact doubles (Clinger 1990).
    #[inline]
    pub(super) fn exact(&self) -> Option<f64> {
        if self.mantissa >> 53 != 0 {
            return None;
        }
        let m = self.mantissa as f64;
        let power = POWERS.get(self.exponent.unsigned_abs() as usize)?;
        let x = if self.exponent < 0 { m / power } else { m * power };
        Some(if self.negative { -x } else { x })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn eight_digits_at_once() {
        for n in [0u64, 1, 12_345_678, 99_999_999, 90_000_009, 10_203_040] {
            assert_eq!(eight_digits(format!("{n:08}").as_bytes()), Some(n));
        }
        // Every byte value at every place: only digits are digits.
        for at in 0..8 {
            for b in 0..=255u8 {
                let mut text = *b"12345678";
                text[at] = b;
                let want = std::str::from_utf8(&text)
                    .ok()
                    .filter(|_| b.is_ascii_digit())
                    .map(|t| t.parse().unwrap());
                assert_eq!(eight_digits(&text), want, "{text:?}");
            }
        }
        assert_eq!(eight_digits(b"1234567"), None);
    }
}
