//! `Cuda` as a [`Device`]: queues and copies here, each op in the file of its family, which checks the shapes. Never computes.
#![allow(unsafe_code)]

use std::sync::Arc;
use std::sync::atomic::AtomicU32;

use bytemuck::Pod;

use super::capture::Counting;
use super::context::{DeviceContext, STREAMS};
use super::error::CudaError;
use super::handle::Cuda;
use super::memory::CudaMemory;
use super::{
    activation, attention, cross_entropy, elementwise, embedding, gate, muon, nccl, norm, norm_heads, optimizer,
    ordinal, product, rotary, rows, squared_error, sums,
};
use crate::device::{
    AdamW, Agreement, AttentionShape, Carried, DecayRun, Device, DeviceDescription, Element, Failure, GoesOn, Group,
    HyperBlock, Mark, Matrix, Nonlinearity, ReportBlock, Rotary, SharedParts, Stored, StoredMut, Strided, StridedMut,
    Then, Weights, Write,
};
use crate::device::{DeviceError, Segment};
use crate::view::{View, ViewMut};

impl Device for Cuda {
    const HEAD_DIM_MAX: usize = attention::HEAD_DIM_MAX;

    // 256 MiB of logits in bf16. For each chunk of tokens, the gradient of the whole table of weights is read and
    // written in f32: 8 bytes an element, with 2 operations a row. A Hopper GPU does 240 operations in the time of a
    // byte, so that fewer than about 1000 rows would take longer to add up than to multiply.
    const LOGITS: usize = 1 << 27;
    const LOGITS_ROWS_MIN: usize = 1024;

    type Memory = CudaMemory;

    fn open(local_rank: usize) -> Result<Self, DeviceError> {
        Ok(Cuda::open(ordinal::of_rank(local_rank)?)?)
    }

    fn all() -> Result<Vec<Self>, DeviceError> {
        let devices = ordinal::all(DeviceContext::shown()?)?;
        if devices.is_empty() {
            return Err(CudaError::NoDevice { ordinal: 0, count: 0 }.into());
        }
        Ok(devices.into_iter().map(Cuda::open).collect::<Result<_, _>>()?)
    }

    fn description(&self) -> Option<DeviceDescription> {
        let name = self.context.enter().and_then(|()| self.name());
        let name = name.map_err(|error| self.fail(error)).ok()?;
        let [taken_bytes, memory_bytes] = self.context.memory_of_device();
        Some(DeviceDescription { name, memory_bytes, taken_bytes })
    }

    fn beside(&self) -> Self {
        self.aside()
    }

    fn failure(&self) -> Option<Failure> {
        self.error().map(Failure::from)
    }

    fn prepare(&self, events: usize) -> Result<(), DeviceError> {
        self.context.enter()?;
        let mut made = self.events.borrow_mut();
        while made.len() < events {
            made.push(self.context.event()?);
        }
        Ok(())
    }

    fn enter(&self, queue: usize) {
        assert!(queue < super::context::QUEUES, "queue {queue} of {}", super::context::QUEUES);
        self.set_queue(queue);
    }

    fn record(&self, event: usize) {
        self.call(("record", event), || self.context.record(self.events.borrow()[event], self.queue()));
    }

    fn wait(&self, event: usize) {
        self.call(("wait", event), || self.context.wait(self.events.borrow()[event], self.queue()));
    }

    fn begin_repeated(&self, key: u64) {
        self.begin_pass(key);
    }

    fn end_repeated(&self) {
        self.end_pass();
    }

    fn rehearse(&self) {
        self.begin_rehearsal();
    }

    fn ready(&self) {
        self.end_rehearsal();
    }

    fn marks(&self) -> Vec<Mark> {
        Cuda::marks(self).unwrap_or_else(|error| {
            self.fail(error);
            Vec::new()
        })
    }

    fn outside(&self) -> Vec<(&'static str, usize)> {
        self.context.outside()
    }

    unsafe fn lend(&self, workspace: ViewMut<Self, u8>) {
        self.workspace.lend(&workspace);
    }

    fn allocate(&self, bytes: usize) -> Result<Self::Memory, DeviceError> {
        Ok(CudaMemory::new(&self.context, bytes)?)
    }

    fn share(&self, segment: Arc<Segment>, parts: SharedParts) -> Result<Self::Memory, DeviceError> {
        let shared = CudaMemory::shared(&self.context, segment, parts)?;
        self.host.set(shared.host().unwrap_or_default());
        Ok(shared)
    }

    const QUEUES: bool = true;

    fn tell(&self, word: &AtomicU32, count: u32) {
        self.count(Counting::Tell, self.reached(word.as_ptr().addr()), count);
    }

    fn await_count(&self, word: &AtomicU32, target: u32) {
        self.count(Counting::Await, self.reached(word.as_ptr().addr()), target);
    }

    fn is_idle(&self) -> bool {
        self.look_at_groups();
        self.context.enter().is_err() || self.context.is_idle(STREAMS)
    }

    fn name_groups(&self, count: usize) -> Result<Vec<u8>, DeviceError> {
        self.context.enter()?;
        Ok(nccl::name_groups(count, self.context.ordinal)?)
    }

    fn connect(&self, groups: &[Group], names: &[u8], goes_on: &GoesOn) -> Result<(), DeviceError> {
        self.context.enter()?;
        *self.groups.borrow_mut() = nccl::NcclGroups::join(&self.context, groups, names, goes_on)?;
        Ok(())
    }

    unsafe fn carry(&self, group: usize, parcels: &mut dyn Iterator<Item = Carried<Self>>, goes_on: &GoesOn) {
        // SAFETY: by the caller's promise.
        unsafe { self.carry_in(group, parcels, goes_on) };
    }

    fn disconnect(&self) {
        self.leave_groups(false);
    }

    fn reach<T>(&self, host: *mut T) -> *mut T {
        std::ptr::without_provenance_mut(self.reached(host.addr()) as usize)
    }

    fn stage<T: Pod>(&self, to: ViewMut<Self, T>, fill: impl FnOnce(&mut [T])) {
        let (len, address) = (to.len(), to.address().addr() as u64);
        let mut fill = Some(fill);
        if len > 0 {
            // SAFETY: elements of a view, which nobody else uses as long as it lives, and no other queue uses
            // afterwards.
            self.attempt(|| unsafe { self.send(address, len, &mut fill) });
        }
        // `fill` expects to be called, even if nobody reads its elements.
        if let Some(fill) = fill {
            fill(&mut vec![T::zeroed(); len]);
        }
    }

    fn restage<T: Pod>(&self, to: ViewMut<Self, T>, fill: impl FnOnce(&mut [T])) {
        let (len, address) = (to.len(), to.address().addr() as u64);
        match self.kept_place_before(address, len * size_of::<T>()) {
            None => self.stage(to, fill),
            // SAFETY: elements that the host has filled in this pass, at an address aligned for any number, which the
            // device copies once the pass has ended.
            Some(place) => fill(unsafe { core::slice::from_raw_parts_mut(place.cast(), len) }),
        }
    }

    fn read<T: Pod>(&self, from: View<Self, T>, to: &mut [T]) {
        assert_eq!(from.len(), to.len(), "elements of the device, and room for them");
        if to.is_empty() {
            return;
        }
        self.call(("read", from.address().addr(), to.len()), || {
            // A read beside a run waited for its data when it began.
            if self.queue() != super::context::ASIDE {
                self.context.join_all(self.queue())?;
            }
            let mut staging = self.staging.borrow_mut();
            let staging = staging.as_mut().expect("a device without staging has failed");
            // SAFETY: elements of a view, which nobody writes as long as it lives; the queue comes after all others.
            unsafe { staging.receive(from.address().addr() as u64, to, self.queue()) }
        });
    }

    fn copy<T: Pod>(&self, to: ViewMut<Self, T>, from: View<Self, T>) {
        elementwise::copy(self, to, from);
    }

    fn fill<T: Pod + Send + Sync>(&self, to: ViewMut<Self, T>, value: T) {
        elementwise::fill(self, to, value);
    }

    fn convert(&self, to: StoredMut<Self>, from: Stored<Self>) {
        elementwise::convert(self, to, from);
    }

    fn add<E: Element>(&self, y: ViewMut<Self, E>, x: View<Self, E>) {
        elementwise::add(self, y, x);
    }

    fn mul<E: Element>(&self, y: ViewMut<Self, E>, x: View<Self, E>) {
        elementwise::mul(self, y, x);
    }

    fn scale<E: Element>(&self, y: ViewMut<Self, E>, factor: f32) {
        elementwise::scale(self, y, factor);
    }

    fn axpby<E: Element>(&self, alpha: f32, x: View<Self, E>, beta: f32, y: ViewMut<Self, E>) {
        elementwise::axpby(self, alpha, x, beta, y);
    }

    fn matmul<O: Element, E: Element>(
        &self,
        c: ViewMut<Self, O>,
        a: Matrix<Self, E>,
        b: Matrix<Self, E>,
        write: Write,
    ) {
        product::matmul(self, c, a, b, write);
    }

    fn linear<E: Element>(
        &self,
        y: ViewMut<Self, E>,
        x: View<Self, E>,
        weight: Matrix<Self, E>,
        bias: Option<View<Self, E>>,
        then: Then<Self, E>,
    ) {
        product::linear(self, y, x, weight, bias, then);
    }

    fn sum_rows<E: Element>(&self, x: View<Self, E>, out: ViewMut<Self, f32>, write: Write) {
        rows::sum_rows(self, x, out, write);
    }

    fn activate<E: Element>(&self, kind: Nonlinearity, x: View<Self, E>, y: ViewMut<Self, E>) {
        activation::activate(self, kind, x, y);
    }

    fn activate_backward<E: Element>(
        &self,
        kind: Nonlinearity,
        x: View<Self, E>,
        dy: View<Self, E>,
        dx: ViewMut<Self, E>,
    ) {
        activation::activate_backward(self, kind, x, dy, dx);
    }

    fn layer_norm<E: Element>(
        &self,
        x: View<Self, E>,
        gain: View<Self, E>,
        bias: View<Self, E>,
        y: ViewMut<Self, E>,
        stats: ViewMut<Self, f32>,
        epsilon: f32,
    ) {
        norm::layer_norm(self, x, gain, bias, y, stats, epsilon);
    }

    fn layer_norm_backward<E: Element>(
        &self,
        x: View<Self, E>,
        gain: View<Self, E>,
        stats: View<Self, f32>,
        dy: View<Self, E>,
        dx: Option<ViewMut<Self, E>>,
        plus: Option<View<Self, E>>,
        dgain: ViewMut<Self, f32>,
        dbias: ViewMut<Self, f32>,
        write: Write,
    ) {
        norm::layer_norm_backward(self, x, gain, stats, dy, dx, plus, dgain, dbias, write);
    }

    fn rms_norm<E: Element>(
        &self,
        x: View<Self, E>,
        gain: View<Self, E>,
        y: ViewMut<Self, E>,
        inverse: ViewMut<Self, f32>,
        epsilon: f32,
    ) {
        norm::rms_norm(self, x, gain, y, inverse, epsilon);
    }

    fn rms_norm_backward<E: Element>(
        &self,
        x: View<Self, E>,
        gain: View<Self, E>,
        inverse: View<Self, f32>,
        dy: View<Self, E>,
        dx: Option<ViewMut<Self, E>>,
        plus: Option<View<Self, E>>,
        dgain: ViewMut<Self, f32>,
        write: Write,
    ) {
        norm::rms_norm_backward(self, x, gain, inverse, dy, dx, plus, dgain, write);
    }

    fn rms_norm_heads<E: Element>(
        &self,
        x: Strided<Self, E>,
        heads: usize,
        gain: View<Self, E>,
        y: StridedMut<Self, E>,
        inverse: ViewMut<Self, f32>,
        epsilon: f32,
    ) {
        norm_heads::rms_norm_heads(self, x, heads, gain, y, inverse, epsilon);
    }

    fn rms_norm_heads_backward<E: Element>(
        &self,
        x: Strided<Self, E>,
        heads: usize,
        gain: View<Self, E>,
        inverse: View<Self, f32>,
        dy: StridedMut<Self, E>,
        dgain: ViewMut<Self, f32>,
        write: Write,
    ) {
        norm_heads::rms_norm_heads_backward(self, x, heads, gain, inverse, dy, dgain, write);
    }

    fn rotary_table(&self, rotary: &Rotary, first: usize, head_dim: usize, table: ViewMut<Self, f32>) {
        rotary::rotary_table(self, rotary, first, head_dim, table);
    }

    fn rotate<E: Element>(
        &self,
        x: StridedMut<Self, E>,
        heads: usize,
        table: View<Self, f32>,
        length: usize,
        back: bool,
    ) {
        rotary::rotate(self, x, heads, table, length, back);
    }

    fn gate<E: Element>(&self, kind: Nonlinearity, x: View<Self, E>, y: ViewMut<Self, E>, width: usize) {
        gate::gate(self, kind, x, y, width);
    }

    fn gate_backward<E: Element>(
        &self,
        kind: Nonlinearity,
        x: View<Self, E>,
        dy: View<Self, E>,
        dx: ViewMut<Self, E>,
        width: usize,
    ) {
        gate::gate_backward(self, kind, x, dy, dx, width);
    }

    fn attention<E: Element>(
        &self,
        shape: AttentionShape,
        q: Strided<Self, E>,
        k: Strided<Self, E>,
        v: Strided<Self, E>,
        out: ViewMut<Self, E>,
        lse: ViewMut<Self, f32>,
    ) {
        attention::attention(self, shape, q, k, v, out, lse);
    }

    fn attention_backward<E: Element>(
        &self,
        shape: AttentionShape,
        q: Strided<Self, E>,
        k: Strided<Self, E>,
        v: Strided<Self, E>,
        out: View<Self, E>,
        lse: View<Self, f32>,
        dout: View<Self, E>,
        dqkv: ViewMut<Self, E>,
    ) {
        attention::attention_backward(self, shape, q, k, v, out, lse, dout, dqkv);
    }

    fn embed<E: Element>(
        &self,
        ids: View<Self, u32>,
        table: View<Self, E>,
        positions: Option<View<Self, E>>,
        out: ViewMut<Self, E>,
        length: usize,
    ) {
        embedding::embed(self, ids, table, positions, out, length);
    }

    fn embed_backward<E: Element>(
        &self,
        ids: View<Self, u32>,
        dout: View<Self, E>,
        dtable: ViewMut<Self, f32>,
        dpositions: Option<ViewMut<Self, f32>>,
        length: usize,
        write: Write,
    ) {
        embedding::embed_backward(self, ids, dout, dtable, dpositions, length, write);
    }

    fn cross_entropy<E: Element>(&self, logits: View<Self, E>, targets: View<Self, u32>, loss: ViewMut<Self, f32>) {
        cross_entropy::cross_entropy(self, logits, targets, loss);
    }

    fn cross_entropy_backward<E: Element>(
        &self,
        logits: ViewMut<Self, E>,
        targets: View<Self, u32>,
        loss: ViewMut<Self, f32>,
    ) {
        cross_entropy::cross_entropy_backward(self, logits, targets, loss);
    }

    fn squared_error<E: Element>(&self, x: View<Self, E>, targets: View<Self, f32>, loss: ViewMut<Self, f32>) {
        squared_error::squared_error(self, x, targets, loss);
    }

    fn squared_error_backward<E: Element>(
        &self,
        x: View<Self, E>,
        targets: View<Self, f32>,
        dloss: View<Self, f32>,
        dx: ViewMut<Self, E>,
    ) {
        squared_error::squared_error_backward(self, x, targets, dloss, dx);
    }

    fn reduce<'a>(
        &self,
        to: StoredMut<Self>,
        count: usize,
        own: Option<usize>,
        source: &dyn Fn(usize) -> Stored<'a, Self>,
        write: Write,
    ) {
        sums::reduce(self, to, count, own, source, write);
    }

    fn add_mean(&self, x: View<Self, f32>, to: ViewMut<Self, f64>) {
        sums::add_mean(self, x, to);
    }

    fn squares(&self, x: Stored<Self>, to: ViewMut<Self, f64>) {
        sums::squares(self, x, to);
    }

    fn agree(
        &self,
        agreement: &Agreement,
        all: View<Self, f64>,
        hyper: View<Self, HyperBlock>,
        report: ViewMut<Self, ReportBlock>,
    ) {
        sums::agree(self, agreement, all, hyper, report);
    }

    fn update(
        &self,
        runs: &[DecayRun],
        hyper: View<Self, HyperBlock>,
        report: View<Self, ReportBlock>,
        weights: Weights<Self>,
        grads: Stored<Self>,
        m: StoredMut<Self>,
        v: StoredMut<Self>,
    ) {
        optimizer::update(self, runs, hyper, report, weights, grads, m, v);
    }

    fn adamw<'a>(
        &self,
        step: &AdamW,
        weights: impl Into<Weights<'a, Self>>,
        grads: impl Into<Stored<'a, Self>>,
        m: impl Into<StoredMut<'a, Self>>,
        v: impl Into<StoredMut<'a, Self>>,
    ) {
        optimizer::adamw(self, step, weights, grads, m, v);
    }

    fn momentum(
        &self,
        hyper: View<Self, HyperBlock>,
        report: View<Self, ReportBlock>,
        gradients: StoredMut<Self>,
        m: StoredMut<Self>,
    ) {
        muon::momentum(self, hyper, report, gradients, m);
    }

    fn normalize<E: Element>(&self, to: ViewMut<Self, E>, from: Stored<Self>, square: View<Self, f64>, epsilon: f64) {
        muon::normalize(self, to, from, square, epsilon);
    }

    fn step_along<E: Element>(
        &self,
        decays: bool,
        factor: f64,
        hyper: View<Self, HyperBlock>,
        report: View<Self, ReportBlock>,
        weights: Weights<Self>,
        direction: View<Self, E>,
    ) {
        muon::step_along(self, decays, factor, hyper, report, weights, direction);
    }

    fn all_finite<'a>(&self, x: impl Into<Stored<'a, Self>>) -> bool {
        optimizer::all_finite(self, x)
    }
}
