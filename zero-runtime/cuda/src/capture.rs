//! Capture: graphs of the driver: how the calls to queues become a graph, and how a graph is launched. Never decides
//! what is captured, or when.
//!
//! Counts are signalled and awaited by nodes that are added to a graph while it is captured, because each launch gives
//! them other numbers. The driver documents such changes for these nodes, but not for captured calls.
#![allow(unsafe_code)]

use std::ptr::null_mut;

use cudarc::driver::sys as cu;

use super::context::DeviceContext;
use super::error::CudaError;

/// The queue that a capture begins and ends in, and that graphs are launched in.
const ORIGIN: usize = 0;

/// An operation on a count in memory.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Counting {
    /// The queue continues once the count has been reached.
    Await,
    /// The count is written after all earlier work of the queue.
    Tell,
}

/// A node of a graph that awaits or signals a count.
pub(super) struct CountNode {
    node: cu::CUgraphNode,
    counting: Counting,
    address: cu::CUdeviceptr,
    /// The count that the next launch awaits or signals.
    pub count: u32,
}

/// A graph that can be launched.
pub(super) struct Graph {
    /// Nodes are named by those of the captured graph.
    captured: cu::CUgraph,
    instance: cu::CUgraphExec,
}

/// The driver's form of an operation on a count. It has the same effect in a graph as in a stream.
fn operation(counting: Counting, address: cu::CUdeviceptr, value: u32) -> cu::CUstreamBatchMemOpParams {
    use cu::CUstreamBatchMemOpType_enum as of;
    let mut operation = cu::CUstreamBatchMemOpParams { pad: [0; 6] };
    match counting {
        Counting::Await => {
            operation.waitValue = cu::CUstreamBatchMemOpParams_union_CUstreamMemOpWaitValueParams_st {
                operation: of::CU_STREAM_MEM_OP_WAIT_VALUE_32,
                address,
                __bindgen_anon_1: cu::CUstreamBatchMemOpParams_union_CUstreamMemOpWaitValueParams_st__bindgen_ty_1 {
                    value,
                },
                flags: cu::CUstreamWaitValue_flags_enum::CU_STREAM_WAIT_VALUE_GEQ as u32,
                alias: 0,
            }
        }
        Counting::Tell => {
            operation.writeValue = cu::CUstreamBatchMemOpParams_union_CUstreamMemOpWriteValueParams_st {
                operation: of::CU_STREAM_MEM_OP_WRITE_VALUE_32,
                address,
                __bindgen_anon_1: cu::CUstreamBatchMemOpParams_union_CUstreamMemOpWriteValueParams_st__bindgen_ty_1 {
                    value,
                },
                flags: 0,
                alias: 0,
            }
        }
    }
    operation
}

impl DeviceContext {
    /// From here on, the calls of this thread to the first queue, and to queues that wait for it, are captured instead
    /// of run.
    pub fn begin_capture(&self) -> Result<(), CudaError> {
        let mode = cu::CUstreamCaptureMode_enum::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
        // SAFETY: a queue of this context.
        let status = unsafe { (self.libraries.driver.cuStreamBeginCapture_v2)(self.stream(ORIGIN), mode) };
        self.check("cuStreamBeginCapture", status)
    }

    /// Captures an operation of a queue on a count.
    pub fn capture_count(
        &self,
        counting: Counting,
        address: cu::CUdeviceptr,
        count: u32,
        queue: usize,
    ) -> Result<CountNode, CudaError> {
        let (driver, stream) = (&self.libraries.driver, self.stream(queue));
        let (mut status, mut graph, mut node) = (0, null_mut(), null_mut());
        let (mut before, mut edges, mut len) = (std::ptr::null(), std::ptr::null(), 0);
        let mut operation = operation(counting, address, count);
        // SAFETY: a queue of this context that is captured, and room for each answer. The list of earlier nodes is the
        // driver's, and is used before the next call for this queue. The new node comes after all of them, whatever
        // their edges, as in any queue.
        unsafe {
            let info = driver.cuStreamGetCaptureInfo_v3;
            let found = info(stream, &mut status, null_mut(), &mut graph, &mut before, &mut edges, &mut len);
            self.check("cuStreamGetCaptureInfo", found)?;
            let params = self.node_params(&mut operation);
            let added = (driver.cuGraphAddBatchMemOpNode)(&mut node, graph, before, len, &raw const params);
            self.check("cuGraphAddBatchMemOpNode", added)?;
            let set = cu::CUstreamUpdateCaptureDependencies_flags_enum::CU_STREAM_SET_CAPTURE_DEPENDENCIES as u32;
            let update = driver.cuStreamUpdateCaptureDependencies_v2;
            let updated = update(stream, &mut node, std::ptr::null(), 1, set);
            self.check("cuStreamUpdateCaptureDependencies", updated)?;
        }
        Ok(CountNode { node, counting, address, count })
    }

    fn node_params(&self, operation: &mut cu::CUstreamBatchMemOpParams) -> cu::CUDA_BATCH_MEM_OP_NODE_PARAMS {
        cu::CUDA_BATCH_MEM_OP_NODE_PARAMS { ctx: self.handle(), count: 1, paramArray: operation, flags: 0 }
    }

    /// Ends a capture, even a failed one, and drops the captured work.
    pub fn abandon_capture(&self) {
        let (driver, mut captured) = (&self.libraries.driver, null_mut());
        // SAFETY: a queue of this context and room for a graph, which nobody uses. A failure cannot be reported to anybody.
        unsafe {
            let _ = (driver.cuStreamEndCapture)(self.stream(ORIGIN), &mut captured);
            if !captured.is_null() {
                let _ = (driver.cuGraphDestroy)(captured);
            }
        }
    }

    /// Ends a capture, and makes a graph of it that can be launched.
    pub fn end_capture(&self) -> Result<Graph, CudaError> {
        let (driver, stream) = (&self.libraries.driver, self.stream(ORIGIN));
        let mut graph = Graph { captured: null_mut(), instance: null_mut() };
        // SAFETY: a queue of this context and room for a graph; then that graph and room for an instance, which are this
        // value's to destroy.
        let made = unsafe {
            let ended = self.check("cuStreamEndCapture", (driver.cuStreamEndCapture)(stream, &mut graph.captured));
            let made = ended.and_then(|()| {
                let instantiate = driver.cuGraphInstantiateWithFlags;
                self.check("cuGraphInstantiate", instantiate(&mut graph.instance, graph.captured, 0))
            });
            made.and_then(|()| self.check("cuGraphUpload", (driver.cuGraphUpload)(graph.instance, stream)))
        };
        match made {
            Ok(()) => Ok(graph),
            Err(error) => {
                if graph.captured.is_null() {
                    self.abandon_capture();
                }
                // SAFETY: it was never launched.
                unsafe { self.drop_graph(&graph) };
                Err(error)
            }
        }
    }

    /// Sets the count of a graph's node for all launches from here on.
    pub fn set_count(&self, graph: &Graph, node: &CountNode) -> Result<(), CudaError> {
        let mut operation = operation(node.counting, node.address, node.count);
        let params = self.node_params(&mut operation);
        let set = self.libraries.driver.cuGraphExecBatchMemOpNodeSetParams;
        // SAFETY: a node of the graph, of the same kind as when it was added; the driver copies the parameters.
        self.check("cuGraphExecBatchMemOpNodeSetParams", unsafe { set(graph.instance, node.node, &raw const params) })
    }

    /// Runs a graph after all earlier work of the first queue.
    pub fn launch_graph(&self, graph: &Graph) -> Result<(), CudaError> {
        // SAFETY: a graph and a queue of this context; the memory that its nodes read and write lives as long as the device.
        let status = unsafe { (self.libraries.driver.cuGraphLaunch)(graph.instance, self.stream(ORIGIN)) };
        self.check("cuGraphLaunch", status)
    }

    /// Drops a graph. The driver frees it after queues have finished with it.
    ///
    /// # Safety
    /// The graph is of this context, and is not used afterwards.
    pub unsafe fn drop_graph(&self, graph: &Graph) {
        let driver = &self.libraries.driver;
        // SAFETY: by the caller's promise. A failure cannot be reported to anybody.
        unsafe {
            if !graph.instance.is_null() {
                let _ = (driver.cuGraphExecDestroy)(graph.instance);
            }
            if !graph.captured.is_null() {
                let _ = (driver.cuGraphDestroy)(graph.captured);
            }
        }
    }
}
