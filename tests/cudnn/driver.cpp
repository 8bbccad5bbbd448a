// A driver without a device, for a check of cuDNN's plans: it accepts every kernel that is loaded, and refuses all else. It has
// all functions that cuDNN looks up while it plans. Never launches.
#define API extern "C" int
#define NO(name) \
    API name() { return 100; }

API cuDriverGetVersion(int* version) { return *version = 13000, 0; }
API cuLibraryLoadData(void** library, ...) { return *library = library, 0; }
API cuLibraryUnload(void*) { return 0; }
API cuLibraryGetKernel(void** kernel, ...) { return *kernel = kernel, 0; }
API cuKernelGetFunction(void** function, ...) { return *function = function, 0; }
API cuKernelSetAttribute(...) { return 0; }
API cuKernelGetAttribute(int* value, ...) { return *value = 0, 0; }
API cuModuleLoadData(void** module, ...) { return *module = module, 0; }
API cuModuleGetFunction(void** function, ...) { return *function = function, 0; }
API cuModuleUnload(void*) { return 0; }
API cuOccupancyMaxPotentialClusterSize(int* size, ...) { return *size = 8, 0; }

NO(cuCtxGetCurrent)
NO(cuCtxGetLimit)
NO(cuCtxPopCurrent)
NO(cuCtxPushCurrent)
NO(cuDeviceGet)
NO(cuDeviceGetCount)
NO(cuGetErrorName)
NO(cuGetErrorString)
NO(cuLaunchCooperativeKernel)
NO(cuLaunchKernel)
NO(cuLaunchKernelEx)
NO(cuLibraryLoadFromFile)
NO(cuLinkAddData)
NO(cuLinkComplete)
NO(cuLinkCreate)
NO(cuLinkDestroy)
NO(cuStreamGetCtx)
NO(cuTensorMapEncodeIm2col)
NO(cuTensorMapEncodeTiled)
