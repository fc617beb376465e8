//! Random UUIDs: ids of sessions and of Consul's ACLs, and secrets of tokens.

/// A random UUID of version 4, in lower case with hyphens.
pub fn new_uuid() -> String {
    of_bits(rand::random())
}

/// A UUID of version 4 (RFC 9562 §5.4), from 128 random bits.
fn of_bits(chance: u128) -> String {
    let bits = chance & !(0xf << 76) & !(0b11 << 62) | 0x4 << 76 | 0b10 << 62;
    let hex = format!("{bits:032x}");
    [&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]].join("-")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_random_uuids() {
        assert_eq!(of_bits(0), "00000000-0000-4000-8000-000000000000");
        assert_eq!(of_bits(u128::MAX), "ffffffff-ffff-4fff-bfff-ffffffffffff");
        assert_ne!(new_uuid(), new_uuid());
    }
}
