// Products of two square matrices by one of two kernels, with a line a step: ./matrix naive|tiled [STEPS [SIDE]]
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <vector>

constexpr int TILE = 32;

#define CHECK(call)                                                                      \
  do {                                                                                   \
    cudaError_t error = (call);                                                          \
    if (error != cudaSuccess) {                                                          \
      fprintf(stderr, "%s: %s\n", #call, cudaGetErrorString(error));                     \
      return 1;                                                                          \
    }                                                                                    \
  } while (0)

__global__ void naive(const float *a, const float *b, float *c, int side) {
  int row = blockIdx.y * TILE + threadIdx.y, column = blockIdx.x * TILE + threadIdx.x;
  float sum = 0;
  for (int k = 0; k < side; k++) sum += a[row * side + k] * b[k * side + column];
  c[row * side + column] = sum;
}

__global__ void tiled(const float *a, const float *b, float *c, int side) {
  __shared__ float left[TILE][TILE], right[TILE][TILE];
  int row = blockIdx.y * TILE + threadIdx.y, column = blockIdx.x * TILE + threadIdx.x;
  float sum = 0;
  for (int tile = 0; tile < side; tile += TILE) {
    left[threadIdx.y][threadIdx.x] = a[row * side + tile + threadIdx.x];
    right[threadIdx.y][threadIdx.x] = b[(tile + threadIdx.y) * side + column];
    __syncthreads();
    for (int k = 0; k < TILE; k++) sum += left[threadIdx.y][k] * right[k][threadIdx.x];
    __syncthreads();
  }
  c[row * side + column] = sum;
}

int main(int count, char **words) {
  bool is_tiled = count > 1 && !strcmp(words[1], "tiled");
  int steps = count > 2 ? atoi(words[2]) : 60, side = count > 3 ? atoi(words[3]) : 4096;
  if (count < 2 || (!is_tiled && strcmp(words[1], "naive")) || steps < 1 || side < TILE || side % TILE) {
    fprintf(stderr, "matrix naive|tiled [STEPS [SIDE]]; SIDE is a multiple of %d\n", TILE);
    return 2;
  }
  std::vector<float> host(size_t(side) * side);
  for (float &value : host) value = rand() / float(RAND_MAX);
  float *a, *b, *c;
  size_t bytes = host.size() * sizeof(float);
  CHECK(cudaMalloc(&a, bytes));
  CHECK(cudaMalloc(&b, bytes));
  CHECK(cudaMalloc(&c, bytes));
  CHECK(cudaMemcpy(a, host.data(), bytes, cudaMemcpyHostToDevice));
  CHECK(cudaMemcpy(b, host.data(), bytes, cudaMemcpyHostToDevice));
  dim3 blocks(side / TILE, side / TILE), threads(TILE, TILE);
  for (int step = 1; step <= steps; step++) {
    timespec before, after;
    clock_gettime(CLOCK_MONOTONIC, &before);
    for (int product = 0; product < 4; product++) {
      if (is_tiled)
        tiled<<<blocks, threads>>>(a, b, c, side);
      else
        naive<<<blocks, threads>>>(a, b, c, side);
    }
    CHECK(cudaGetLastError());
    CHECK(cudaDeviceSynchronize());
    clock_gettime(CLOCK_MONOTONIC, &after);
    double milliseconds = (after.tv_sec - before.tv_sec) * 1e3 + (after.tv_nsec - before.tv_nsec) / 1e6;
    printf("step %d took %.3f ms\n", step, milliseconds);
    fflush(stdout);
  }
  return 0;
}
