// A stand-in for hipBLASLt. It offers one algorithm for each matrix product, and computes nothing.
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { kSuccess = 0 };

static int make_object(void** out) {
  return *out = calloc(1, 64), kSuccess;
}

int hipblasLtCreate(void** out) {
  return make_object(out);
}
int hipblasLtDestroy(void* handle) {
  return free(handle), kSuccess;
}
int hipblasLtMatrixLayoutCreate(void** out, int type, uint64_t rows, uint64_t columns, int64_t stride) {
  return make_object(out);
}
int hipblasLtMatrixLayoutSetAttribute(void* layout, int attribute, const void* value, size_t bytes) {
  return kSuccess;
}
int hipblasLtMatrixLayoutDestroy(void* layout) {
  return free(layout), kSuccess;
}
int hipblasLtMatmulDescCreate(void** out, int compute_type, int scale_type) {
  return make_object(out);
}
int hipblasLtMatmulDescSetAttribute(void* product, int attribute, const void* value, size_t bytes) {
  return kSuccess;
}
int hipblasLtMatmulDescDestroy(void* product) {
  return free(product), kSuccess;
}
int hipblasLtMatmulPreferenceCreate(void** out) {
  return make_object(out);
}
int hipblasLtMatmulPreferenceSetAttribute(void* p, int attribute, const void* value, size_t bytes) {
  return kSuccess;
}
int hipblasLtMatmulPreferenceDestroy(void* preference) {
  return free(preference), kSuccess;
}

// hipblasLtMatmulHeuristicResult_t. All zeros mean a usable algorithm that needs no workspace.
typedef struct {
  uint8_t algorithm[16];
  size_t most_workspace, workspace;
  int state;
  float waves;
  int reserved[4];
} Result;
int hipblasLtMatmulAlgoGetHeuristic(void* handle, void* product, void* a, void* b, void* c, void* d, void* preference,
                                    int wanted, Result* results, int* found) {
  memset(results, 0, sizeof *results);
  return *found = 1, kSuccess;
}
int hipblasLtMatmul(void* handle, void* product, const void* alpha, const void* a, void* a_layout, const void* b,
                    void* b_layout, const void* beta, const void* c, void* c_layout, void* d, void* d_layout,
                    const void* algorithm, void* workspace, size_t workspace_bytes, void* stream) {
  return kSuccess;
}
