//! Seeds of random number generators.

/// Derives a seed from two numbers, with the finaliser of SplitMix64.
pub(crate) const fn mix_seeds(left: u64, right: u64) -> u64 {
    let mut value = left
        .wrapping_mul(0x9e37_79b9_7f4a_7c15)
        .wrapping_add(right)
        .wrapping_add(0x9e37_79b9_7f4a_7c15);
    value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}
