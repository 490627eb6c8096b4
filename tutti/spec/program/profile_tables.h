// The tables behind profile.h, one function per implementation.
#pragma once

#include "tutti/spec/program/profile.h"

namespace tutti::spec {

Profile make_tutti_profile();
Profile make_megatron_2022_profile();
Profile make_megatron_2021_profile();
Profile make_megatron_deepspeed_profile();
Profile make_megatron_te_profile();
Profile make_megatron_te_2_11_profile();
Profile make_megatron_bridge_profile();
Profile make_nemo_mlperf_profile();
Profile make_nemo_lora_profile();
Profile make_llama3_profile();
Profile make_torchtitan_profile();

}  // namespace tutti::spec
