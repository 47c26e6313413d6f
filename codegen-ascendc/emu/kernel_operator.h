// The name by which Ascend C sources include their API; here it is the emulator's.
#pragma once
#include "ascendc_emu.h"
