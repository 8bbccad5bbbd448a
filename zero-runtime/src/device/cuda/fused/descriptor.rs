//! Descriptor: a value of cuDNN's backend API. It is made, its attributes are set, it is finalized, and then others
//! take it. Never knows what it describes.
#![allow(unsafe_code)]

use std::ffi::{CStr, c_char, c_int, c_void};
use std::ptr::null_mut;
use std::rc::Rc;

use crate::device::cuda::library::Dnn;

/// A type of attributes, with the library's number of that type.
///
/// # Safety
/// For a value of that type, the library reads or writes exactly the bytes of this type, and any bits of them are a
/// value.
pub(super) unsafe trait Attribute: Copy + Default {
    const TYPE: c_int;
}

macro_rules! attributes {
    ($($(#[$doc:meta])* $name:ident = $number:literal;)*) => {
        $($(#[$doc])*
        #[derive(Clone, Copy, Default, PartialEq, Eq, Hash, Debug)]
        #[repr(transparent)]
        pub(super) struct $name(pub c_int);

        // SAFETY: an enumeration of C, as a number.
        unsafe impl Attribute for $name {
            const TYPE: c_int = $number;
        })*
    };
}

attributes! {
    /// `cudnnDataType_t`
    DataType = 1;
    /// `cudnnBackendHeurMode_t`
    Heuristic = 8;
    /// `cudnnBackendKnobType_t`
    Knob = 9;
    /// `cudnnBackendNumericalNote_t`
    Note = 11;
    /// `cudnnPointwiseMode_t`
    Pointwise = 14;
}

/// `bool` of C, which has one byte.
#[derive(Clone, Copy, Default)]
#[repr(transparent)]
pub(super) struct Flag(pub u8);

/// An address, of the host or of the device.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub(super) struct Pointer(pub *const c_void);

impl Default for Pointer {
    fn default() -> Self {
        Self(std::ptr::null())
    }
}

/// `cudnnHandle_t`
#[derive(Clone, Copy)]
#[repr(transparent)]
pub(super) struct DnnHandle(pub *mut c_void);

impl Default for DnnHandle {
    fn default() -> Self {
        Self(null_mut())
    }
}

// SAFETY: `CUDNN_TYPE_HANDLE`, a pointer.
unsafe impl Attribute for DnnHandle {
    const TYPE: c_int = 0;
}
// SAFETY: `CUDNN_TYPE_BOOLEAN`, a byte.
unsafe impl Attribute for Flag {
    const TYPE: c_int = 2;
}
// SAFETY: `CUDNN_TYPE_INT64`
unsafe impl Attribute for i64 {
    const TYPE: c_int = 3;
}
// SAFETY: `CUDNN_TYPE_VOID_PTR`
unsafe impl Attribute for Pointer {
    const TYPE: c_int = 6;
}
// SAFETY: `CUDNN_TYPE_CHAR`
unsafe impl Attribute for u8 {
    const TYPE: c_int = 24;
}

/// `CUDNN_TYPE_BACKEND_DESCRIPTOR`
const DESCRIPTOR: c_int = 15;

/// A value of the backend API, with all values that it was made of.
pub(super) struct Descriptor {
    library: &'static Dnn,
    handle: *mut c_void,
    parts: Vec<Rc<Descriptor>>,
}

/// The library's message for a status, unless that is success.
pub(super) fn check(library: &Dnn, call: &str, status: c_int) -> Result<(), String> {
    if status == 0 {
        return Ok(());
    }
    let mut last: [c_char; 512] = [0; 512];
    // SAFETY: any number is a valid argument, and its text lives on; there is room for the library's last message,
    // which it ends with a zero, and the last element stays zero too.
    let (meaning, last) = unsafe {
        (library.cudnnGetLastErrorString)(last.as_mut_ptr(), last.len() - 1);
        (CStr::from_ptr((library.cudnnGetErrorString)(status)), CStr::from_ptr(last.as_ptr()))
    };
    let (meaning, last) = (meaning.to_string_lossy(), last.to_string_lossy());
    let said = if last.is_empty() { String::new() } else { format!(": {}", last.trim()) };
    Err(format!("`{call}` gave {meaning}{said}"))
}

impl Descriptor {
    /// A value of one of the kinds of `cudnnBackendDescriptorType_t`, without attributes.
    pub fn new(library: &'static Dnn, kind: c_int) -> Result<Self, String> {
        let mut descriptor = Self { library, handle: null_mut(), parts: Vec::new() };
        // SAFETY: room for a handle.
        let status = unsafe { (library.cudnnBackendCreateDescriptor)(kind, &mut descriptor.handle) };
        check(library, "cudnnBackendCreateDescriptor", status).map(|()| descriptor)
    }

    /// Sets an attribute to these values.
    pub fn with<T: Attribute>(self, name: c_int, values: &[T]) -> Result<Self, String> {
        self.set(name, T::TYPE, values.len(), values.as_ptr().cast())
    }

    /// Sets an attribute to other descriptors.
    pub fn with_parts(mut self, name: c_int, parts: &[&Rc<Descriptor>]) -> Result<Self, String> {
        let handles: Vec<_> = parts.iter().map(|part| part.handle).collect();
        self.parts.extend(parts.iter().map(|&part| Rc::clone(part)));
        self.set(name, DESCRIPTOR, handles.len(), handles.as_ptr().cast())
    }

    fn set(self, name: c_int, kind: c_int, count: usize, values: *const c_void) -> Result<Self, String> {
        // SAFETY: a descriptor that exists, and `count` values of that type, which the library copies.
        let status = unsafe { (self.library.cudnnBackendSetAttribute)(self.handle, name, kind, count as i64, values) };
        check(self.library, &format!("cudnnBackendSetAttribute of {name}"), status).map(|()| self)
    }

    /// Finalizes it, so that others can take it.
    pub fn finalized(self) -> Result<Rc<Self>, String> {
        // SAFETY: a descriptor that exists.
        let status = unsafe { (self.library.cudnnBackendFinalize)(self.handle) };
        check(self.library, "cudnnBackendFinalize", status).map(|()| Rc::new(self))
    }

    /// All values of an attribute, at most `most`.
    pub fn values<T: Attribute>(&self, name: c_int, most: usize) -> Result<Vec<T>, String> {
        let mut values = vec![T::default(); most];
        let count = self.get(name, T::TYPE, most, values.as_mut_ptr().cast())?;
        values.truncate(count);
        Ok(values)
    }

    /// The single value of an attribute.
    pub fn value<T: Attribute>(&self, name: c_int) -> Result<T, String> {
        let none = || format!("cuDNN says nothing of attribute {name}");
        self.values(name, 1)?.first().copied().ok_or_else(none)
    }

    /// All descriptors of this kind that an attribute has, at most `most`.
    pub fn parts(&self, name: c_int, kind: c_int, most: usize) -> Result<Vec<Self>, String> {
        // The library fills existing descriptors.
        let mut parts = (0..most).map(|_| Self::new(self.library, kind)).collect::<Result<Vec<_>, _>>()?;
        let mut handles: Vec<_> = parts.iter().map(|part| part.handle).collect();
        let count = self.get(name, DESCRIPTOR, most, handles.as_mut_ptr().cast())?;
        parts.truncate(count);
        Ok(parts)
    }

    fn get(&self, name: c_int, kind: c_int, most: usize, values: *mut c_void) -> Result<usize, String> {
        let mut count = 0;
        // SAFETY: a descriptor that exists, and room for `most` values of that type.
        let status = unsafe {
            (self.library.cudnnBackendGetAttribute)(self.handle, name, kind, most as i64, &mut count, values)
        };
        check(self.library, &format!("cudnnBackendGetAttribute of {name}"), status)?;
        Ok(usize::try_from(count).unwrap_or(0).min(most))
    }

    /// Executes this, which is a plan.
    ///
    /// # Safety
    /// Until the queue of the handle is done with it, `pack` has the addresses of everything that the plan reads and
    /// writes, each as long as was described.
    pub unsafe fn execute(&self, handle: DnnHandle, pack: &Self) -> Result<(), String> {
        // SAFETY: by the caller's promise.
        let status = unsafe { (self.library.cudnnBackendExecute)(handle.0, self.handle, pack.handle) };
        check(self.library, "cudnnBackendExecute", status)
    }
}

impl Drop for Descriptor {
    fn drop(&mut self) {
        if !self.handle.is_null() {
            // SAFETY: made by `new`, and used nowhere after. There is nobody to tell a failure.
            let _ = unsafe { (self.library.cudnnBackendDestroyDescriptor)(self.handle) };
        }
    }
}
