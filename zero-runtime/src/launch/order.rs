//! Order: what NCCL is told of the order in which a device begins what several communicators do. Never changes what a user has
//! set.
#![allow(unsafe_code)]

/// With 1 in this variable, a device begins what NCCL is asked for in the order in which its host asked, whichever communicator
/// it is for, also in a graph, whose branches the driver may otherwise begin in any order. Otherwise work that waits for another
/// rank may occupy the device while that rank waits for work behind it. NCCL demands that ranks then ask in an order that they share: hosts walk over the
/// tables of the plan, which are proven to end.
const LAUNCH_ORDER: &str = "NCCL_LAUNCH_ORDER_IMPLICIT";

/// Sets it for this process, before NCCL is there, and for those that this one starts. Where there is a second thread, which
/// may read variables at this moment, it stays as it is.
pub(crate) fn keep_launch_order() {
    let is_alone = std::fs::read_dir("/proc/self/task").is_ok_and(|threads| threads.count() == 1);
    if is_alone && std::env::var_os(LAUNCH_ORDER).is_none() {
        // SAFETY: this thread is the only one.
        unsafe { std::env::set_var(LAUNCH_ORDER, "1") };
    }
}
