// The pretend `libcublasLt.so.13`: products of matrices of f32 and bf16 with sums in f32, as work of a stream of the pretend
// driver. Refuses what the library refuses: pointers less aligned than the heuristic was told, a workspace that is too
// small. All algorithms give the same sums.
#include <cmath>
#include <cstdlib>
#include <functional>
#include <memory>
#include <unistd.h>

#include "product.h"
#include "symbols.h"

#define API extern "C" __attribute__((visibility("default"))) int
extern "C" int pretend_enqueue(void* stream, int (*run)(void*), void* data, void (*drop)(void*));

namespace {

using pretend::Operand;
using pretend::Type;

enum Status { SUCCESS = 0, NOT_INITIALIZED = 1, INVALID_VALUE = 7, EXECUTION_FAILED = 13, NOT_SUPPORTED = 15 };
// Bits of epilogues.
enum { RELU = 2, BIAS = 4, GELU = 32, AUXILIARY = 128 };

struct Layout {
    int type, order = 0, batches = 1;
    uint64_t rows, columns;
    int64_t leading, batch_step = 0;
};
struct Description {
    int compute, scale, pointer_mode = 0, transposed[2] = {}, bias_type = -1;
    unsigned epilogue = 1;
    const void* bias = nullptr;
    void* auxiliary = nullptr;
    int64_t auxiliary_leading = 0;
};
struct Preference {
    uint64_t workspace_max = 0;
    uint32_t alignments[4] = {256, 256, 256, 256};
};
// The contents of an algorithm, of which callers keep copies. Some of it means nothing, and differs between processes.
struct Algorithm {
    uint64_t magic;
    uint32_t number, noise;
    uint64_t workspace;
    uint32_t alignments[4];
    uint64_t shape[3];
};
static_assert(sizeof(Algorithm) == 64, "as large as cublasLtMatmulAlgo_t");
struct Heuristic {
    Algorithm algorithm;
    size_t workspace;
    int state;
    float waves;
    int reserved[4];
};

const uint64_t MAGIC = 0x7a65726f70726574;
const uint64_t WORKSPACES[] = {64 << 10, 16 << 10, 0};

bool is_type(int type) { return type == int(Type::F32) || type == int(Type::BF16); }

// Element (row, column) of op(matrix), or of its transpose.
Operand operand(const void* start, const Layout& layout, bool transposed) {
    size_t down = layout.order == 0 ? 1 : layout.leading, across = layout.order == 0 ? layout.leading : 1;
    return {start, Type(layout.type), transposed ? across : down, transposed ? down : across};
}

struct Shape { uint64_t m, n, k; };

// The shape of a product, or a status that says why it has none.
int shape(const Description& of, const Layout& a, const Layout& b, const Layout& c, const Layout& d, Shape& to) {
    for (const Layout* layout : {&a, &b, &c, &d}) {
        if (!is_type(layout->type) || layout->order > 1) return NOT_SUPPORTED;
        if (layout->leading < int64_t(layout->order == 0 ? layout->rows : layout->columns)) return INVALID_VALUE;
    }
    if ((of.compute != 68 && of.compute != 69 && of.compute != 77) || of.scale != 0 || of.pointer_mode) return NOT_SUPPORTED;
    if (a.type != b.type || c.type != d.type || (a.type == int(Type::F32) && d.type != a.type)) return NOT_SUPPORTED;
    if ((of.epilogue & ~(1u | RELU | BIAS | GELU | AUXILIARY)) || (of.epilogue & (GELU | AUXILIARY)) == AUXILIARY)
        return NOT_SUPPORTED;
    bool ta = of.transposed[0], tb = of.transposed[1];
    to = {ta ? a.columns : a.rows, tb ? b.rows : b.columns, ta ? a.rows : a.columns};
    bool fits = to.k == (tb ? b.columns : b.rows) && d.rows == to.m && d.columns == to.n && c.rows == to.m &&
                c.columns == to.n && to.m && to.n && to.k;
    return fits ? SUCCESS : INVALID_VALUE;
}

float gelu(float x) { return 0.5f * x * (1 + tanhf(0.7978845608f * (x + 0.044715f * x * x * x))); }

// A call with its arguments.
struct Product {
    Description of;
    Layout layouts[4];
    Shape shape;
    const char *a, *b, *c;
    char* d;
    float alpha, beta;
    char* workspace;
    uint64_t workspace_used;

    float finished(float value, uint64_t row, uint64_t column) const {
        Type bias_type = Type(of.bias_type >= 0 ? of.bias_type : layouts[3].type);
        if (of.epilogue & BIAS) value += pretend::load(of.bias, bias_type, row);
        if (of.epilogue & RELU) value = value > 0 ? value : 0;
        if (!(of.epilogue & GELU)) return value;
        if (of.epilogue & AUXILIARY)
            pretend::store(of.auxiliary, Type(layouts[3].type), row + column * of.auxiliary_leading, value);
        return gelu(value);
    }

    void batch(int number) const {
        auto from = [&](const char* start, int which) {
            const Layout& layout = layouts[which];
            return start + number * layout.batch_step * int64_t(pretend::bytes_of(Type(layout.type)));
        };
        Operand left = operand(from(a, 0), layouts[0], of.transposed[0]);
        Operand right = operand(from(b, 1), layouts[1], !of.transposed[1]);
        Operand before = operand(from(c, 2), layouts[2], false), to = operand(from(d, 3), layouts[3], false);
        pretend::product(shape.m, shape.n, shape.k, left, right, [&](size_t row, size_t column, float sum) {
            float value = alpha * sum;
            if (beta != 0)
                value = fmaf(beta, pretend::load(before.start, before.type,
                                                 row * before.row_step + column * before.column_step), value);
            pretend::store(const_cast<void*>(to.start), to.type, row * to.row_step + column * to.column_step,
                           finished(value, row, column));
        });
    }

    int run() const {
        // Overwritten, so that a test notices a workspace in which something else lies.
        if (workspace_used) memset(workspace, 0xff, workspace_used);
        for (int number = 0; number < layouts[3].batches; number++) batch(number);
        return SUCCESS;
    }
};

bool aligned(const void* pointer, uint64_t to) { return reinterpret_cast<uintptr_t>(pointer) % to == 0; }

template <class T> int set(T& to, const void* from, size_t bytes) {
    if (bytes != sizeof to) return INVALID_VALUE;
    memcpy(&to, from, bytes);
    return SUCCESS;
}

}  // namespace

extern "C" __attribute__((visibility("default"))) size_t cublasLtGetVersion() { return 130000; }

API cublasLtCreate(void** handle) { return *handle = calloc(1, 1), SUCCESS; }
API cublasLtDestroy(void* handle) { return free(handle), SUCCESS; }

API cublasLtMatmulDescCreate(Description** to, int compute, int scale) {
    *to = new Description;
    (*to)->compute = compute, (*to)->scale = scale;
    return SUCCESS;
}
API cublasLtMatmulDescDestroy(Description* of) { return delete of, SUCCESS; }
API cublasLtMatmulDescSetAttribute(Description* of, int attribute, const void* from, size_t bytes) {
    switch (attribute) {
        case 2: return set(of->pointer_mode, from, bytes);
        case 3: return set(of->transposed[0], from, bytes);
        case 4: return set(of->transposed[1], from, bytes);
        case 7: return set(of->epilogue, from, bytes);
        case 8: return set(of->bias, from, bytes);
        case 11: return set(of->auxiliary, from, bytes);
        case 12: return set(of->auxiliary_leading, from, bytes);
        case 26: return set(of->bias_type, from, bytes);
        default: return NOT_SUPPORTED;
    }
}

API cublasLtMatrixLayoutCreate(Layout** to, int type, uint64_t rows, uint64_t columns, int64_t leading) {
    *to = new Layout;
    (*to)->type = type, (*to)->rows = rows, (*to)->columns = columns, (*to)->leading = leading;
    return SUCCESS;
}
API cublasLtMatrixLayoutDestroy(Layout* of) { return delete of, SUCCESS; }
API cublasLtMatrixLayoutSetAttribute(Layout* of, int attribute, const void* from, size_t bytes) {
    switch (attribute) {
        case 0: return set(of->type, from, bytes);
        case 1: return set(of->order, from, bytes);
        case 2: return set(of->rows, from, bytes);
        case 3: return set(of->columns, from, bytes);
        case 4: return set(of->leading, from, bytes);
        case 5: return set(of->batches, from, bytes);
        case 6: return set(of->batch_step, from, bytes);
        default: return NOT_SUPPORTED;
    }
}

API cublasLtMatmulPreferenceCreate(Preference** to) { return *to = new Preference, SUCCESS; }
API cublasLtMatmulPreferenceDestroy(Preference* of) { return delete of, SUCCESS; }
API cublasLtMatmulPreferenceSetAttribute(Preference* of, int attribute, const void* from, size_t bytes) {
    if (attribute == 1) return set(of->workspace_max, from, bytes);
    if (attribute >= 5 && attribute <= 8) return set(of->alignments[attribute - 5], from, bytes);
    return attribute == 3 ? SUCCESS : NOT_SUPPORTED;
}

API cublasLtMatmulAlgoGetHeuristic(void* handle, const Description* of, const Layout* a, const Layout* b, const Layout* c,
                                   const Layout* d, const Preference* preference, int wanted, Heuristic* to, int* found) {
    *found = 0;
    if (!handle) return NOT_INITIALIZED;
    if (pretend::fails("heuristic")) return NOT_SUPPORTED;
    Shape shape;
    if (int status = ::shape(*of, *a, *b, *c, *d, shape)) return status;
    // `PRETEND_FAIL=way:1`: another algorithm is the first.
    for (uint32_t number = strtoul(pretend::word("way").c_str(), nullptr, 10); number < 3 && *found < wanted; number++) {
        if (WORKSPACES[number] > preference->workspace_max) continue;
        Algorithm algorithm = {MAGIC, number, uint32_t(getpid()), WORKSPACES[number], {}, {shape.m, shape.n, shape.k}};
        memcpy(algorithm.alignments, preference->alignments, sizeof algorithm.alignments);
        to[(*found)++] = {algorithm, size_t(WORKSPACES[number]), SUCCESS, 1.0f, {}};
    }
    return *found ? SUCCESS : NOT_SUPPORTED;
}

API cublasLtMatmulAlgoConfigGetAttribute(const Algorithm* of, int attribute, void* to, size_t bytes, size_t* needed) {
    if (of->magic != MAGIC || attribute < 0 || attribute > 8) return INVALID_VALUE;
    // The last two have 16 bits.
    *needed = attribute < 7 ? 4 : 2;
    if (bytes == 0) return SUCCESS;
    if (bytes != *needed) return INVALID_VALUE;
    // The number alone tells ways apart.
    uint32_t value = attribute == 0 ? of->number : 0;
    memcpy(to, &value, bytes);
    return SUCCESS;
}

API cublasLtMatmul(void* handle, const Description* of, const void* alpha, const void* a, const Layout* al, const void* b,
                   const Layout* bl, const void* beta, const void* c, const Layout* cl, void* d, const Layout* dl,
                   const Algorithm* algorithm, void* workspace, size_t workspace_bytes, void* stream) {
    if (!handle) return NOT_INITIALIZED;
    if (pretend::fails("product")) return EXECUTION_FAILED;
    auto made = std::make_unique<Product>();
    if (int status = shape(*of, *al, *bl, *cl, *dl, made->shape)) return status;
    const Algorithm otherwise = {MAGIC, 2, 0, 0, {1, 1, 1, 1}, {made->shape.m, made->shape.n, made->shape.k}};
    if (!algorithm) algorithm = &otherwise;
    if (algorithm->magic != MAGIC || memcmp(algorithm->shape, &made->shape, sizeof made->shape)) return INVALID_VALUE;
    const void* pointers[] = {a, b, c, d};
    for (int i = 0; i < 4; i++)
        if (!aligned(pointers[i], algorithm->alignments[i])) return NOT_SUPPORTED;
    if (algorithm->workspace > workspace_bytes || (algorithm->workspace && !aligned(workspace, 256))) return INVALID_VALUE;
    if ((of->epilogue & BIAS) && (!of->bias || reinterpret_cast<uintptr_t>(of->bias) % 16)) return INVALID_VALUE;
    *made = {*of, {*al, *bl, *cl, *dl}, made->shape, static_cast<const char*>(a), static_cast<const char*>(b),
             static_cast<const char*>(c), static_cast<char*>(d), *static_cast<const float*>(alpha),
             *static_cast<const float*>(beta), static_cast<char*>(workspace), algorithm->workspace};
    auto run = [](void* data) { return static_cast<Product*>(data)->run(); };
    auto drop = [](void* data) { delete static_cast<Product*>(data); };
    return pretend_enqueue(stream, run, made.release(), drop) ? EXECUTION_FAILED : SUCCESS;
}
