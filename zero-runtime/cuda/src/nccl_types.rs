//! NCCL types: the arguments of NCCL's functions, as in its C header. Never calls a function.

use std::ffi::{c_char, c_int, c_uint};
use std::ptr::null;

/// The oldest supported version: 2.28, which has this configuration.
pub(super) const VERSION_MIN: c_int = 22_800;

/// `NCCL_CONFIG_UNDEF_INT`.
const UNDEFINED: c_int = c_int::MIN;

pub(super) const NAME_BYTES: usize = 128;

/// `ncclUniqueId`.
#[derive(Clone, Copy)]
#[repr(C)]
pub(super) struct UniqueId(pub [c_char; NAME_BYTES]);

/// `ncclConfig_t` of 2.28. A newer library treats missing fields as undefined.
#[repr(C)]
pub(super) struct Configuration {
    size: usize,
    magic: c_uint,
    version: c_uint,
    blocking: c_int,
    cluster: c_int,
    blocks_min: c_int,
    blocks_max: c_int,
    network: *const c_char,
    split_share: c_int,
    traffic_class: c_int,
    name: *const c_char,
    in_network: c_int,
    policy: c_int,
    shrink_share: c_int,
    multicast_blocks: c_int,
    channels_per_peer: c_int,
    link_centric: c_int,
}

// The size of the struct in the C header.
const _: () = assert!(size_of::<Configuration>() == 80);

impl Configuration {
    pub fn new() -> Self {
        Self {
            size: size_of::<Self>(),
            magic: 0xcafe_beef,
            version: VERSION_MIN as c_uint,
            blocking: 0,
            cluster: UNDEFINED,
            blocks_min: UNDEFINED,
            blocks_max: UNDEFINED,
            network: null(),
            split_share: UNDEFINED,
            traffic_class: UNDEFINED,
            name: null(),
            in_network: UNDEFINED,
            policy: UNDEFINED,
            shrink_share: UNDEFINED,
            multicast_blocks: UNDEFINED,
            channels_per_peer: UNDEFINED,
            link_centric: UNDEFINED,
        }
    }
}
