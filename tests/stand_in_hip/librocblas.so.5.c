// A stand-in for rocBLAS, whose matrix products compute nothing.
#include <stdlib.h>

enum { kSuccess = 0 };

int rocblas_create_handle(void** out) {
  return *out = calloc(1, 64), kSuccess;
}
int rocblas_destroy_handle(void* handle) {
  return free(handle), kSuccess;
}
int rocblas_set_stream(void* handle, void* stream) {
  return *(void**)handle = stream, kSuccess;
}
int rocblas_get_stream(void* handle, void** out) {
  return *out = *(void**)handle, kSuccess;
}
int rocblas_set_atomics_mode(void* handle, int mode) {
  return kSuccess;
}
int rocblas_gemm_ex(void) {
  return kSuccess;
}
int rocblas_gemm_strided_batched_ex(void) {
  return kSuccess;
}
int rocblas_sgemm(void) {
  return kSuccess;
}
int rocblas_hgemm(void) {
  return kSuccess;
}
int rocblas_sgemm_strided_batched(void) {
  return kSuccess;
}
int rocblas_hgemm_strided_batched(void) {
  return kSuccess;
}
