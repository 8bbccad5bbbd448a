//! Order: sets the order in which a device begins NCCL's operations of several communicators. Never changes a value that
//! a user has set.
#![allow(unsafe_code)]

/// If this variable is 1, a device begins NCCL's operations in the order in which its host issued them, across
/// communicators, also in a graph, whose branches the driver may otherwise begin in any order. Otherwise an operation
/// that waits for another rank may occupy the device while that rank waits for an operation queued after it. NCCL
/// requires that all ranks then issue operations in the same order: hosts follow the tables of the plan, which are
/// proven to end.
const LAUNCH_ORDER: &str = "NCCL_LAUNCH_ORDER_IMPLICIT";

/// Sets the variable for this process, before NCCL is loaded, and for processes that this one starts. Leaves it
/// unchanged if there is a second thread, which might be reading variables.
pub fn keep_launch_order() {
    let is_alone = std::fs::read_dir("/proc/self/task").is_ok_and(|threads| threads.count() == 1);
    if is_alone && std::env::var_os(LAUNCH_ORDER).is_none() {
        // SAFETY: this thread is the only one.
        unsafe { std::env::set_var(LAUNCH_ORDER, "1") };
    }
}
