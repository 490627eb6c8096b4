#include "tutti/node/product_probe.h"

#include <gtest/gtest.h>

#include <memory>
#include <vector>

namespace tutti::node {
namespace {

engine::Stream* inner = nullptr;
int products = 0;

// Right but for one bit of one entry, in every third product.
void flipping_gemm(engine::Stream&, const engine::GemmArgs& args) {
  inner->ops().gemm(*inner, args);
  if (++products % 3 == 0) static_cast<uint32_t*>(args.c.data)[7] ^= 1U << 3;
}

// Wrong in the same way every time: as an unhealthy unit would be.
void scaling_gemm(engine::Stream&, const engine::GemmArgs& args) {
  engine::GemmArgs scaled = args;
  scaled.alpha = 1.001F;
  inner->ops().gemm(*inner, scaled);
}

class BrokenStream : public engine::Stream {
 public:
  explicit BrokenStream(const engine::OpTable& ops) : Stream(ops) {}
  void synchronize() override {}
};

class ProductProbeTest : public testing::Test {
 protected:
  void SetUp() override {
    stream_ = engine::make_cpu_stream(2);
    inner = stream_.get();
    ops_ = stream_->ops();
    products = 0;
  }
  std::unique_ptr<engine::Stream> stream_;
  engine::OpTable ops_;
};

TEST_F(ProductProbeTest, ProductsOfThisMachineAreCorrectAndReproducible) {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    const ProductProbe probe = probe_product(*stream_, dtype, 0);
    EXPECT_EQ(probe.seconds.size(), 10U);
    EXPECT_EQ(probe.wrong, 0);
    EXPECT_EQ(probe.changed, 0);
    EXPECT_GT(probe.flops_per_second(), 1e8);
  }
}

TEST_F(ProductProbeTest, AFlippedBitIsSeen) {
  ops_.gemm = flipping_gemm;
  BrokenStream stream(ops_);
  const ProductProbe probe = probe_product(stream, DType::f32, 0);
  EXPECT_EQ(probe.changed, 3);
}

TEST_F(ProductProbeTest, SteadilyWrongProductsAreSeen) {
  ops_.gemm = scaling_gemm;
  BrokenStream stream(ops_);
  const ProductProbe probe = probe_product(stream, DType::f32, 0);
  EXPECT_EQ(probe.changed, 0);
  EXPECT_GT(probe.wrong, 0);
}

TEST_F(ProductProbeTest, DisturbedProductsDoNotCount) {
  ProductProbe probe;
  probe.size = 100;
  probe.seconds.assign(20, 1e-3);
  const double clean = probe.flops_per_second();
  for (size_t i = 0; i < 10; ++i) probe.seconds[i] = 5e-3;
  EXPECT_DOUBLE_EQ(probe.flops_per_second(), clean);
  probe.seconds.assign(20, 1.05e-3);
  EXPECT_NEAR(probe.flops_per_second(), clean / 1.05, 1);
}

}  // namespace
}  // namespace tutti::node
