//! Runs that are ended from outside, and come back: before and after each system call of a save, and by faults of ranks and of
//! the launcher. However they were ended, they end with the states and the losses of one that was left alone, to the bit.

mod faults;
mod kill;
mod survivor;
mod trace;
