"""The same requests through the same admission on the virtual clock."""

from __future__ import annotations

import time
from collections.abc import Sequence

from stand import MAX_MODEL_LEN, EnginePool, Kept, Measured

from forebay.lab.measure.recorder import RecorderOptions
from forebay.lab.measure.result import Run
from forebay.lab.sim.admitted import AdmittedRouter
from forebay.lab.sim.fleet import Fleet, Pool, PoolConfig, Router
from forebay.lab.sim.profiles import find_profile
from forebay.lab.sim.routers import find_router
from forebay.lab.sim.run import VirtualDrive
from forebay.lab.workload.plan import Workload
from forebay.policy.admission import AdmissionSettings


def predicted(
    workload: Workload, pools: Sequence[EnginePool], seed: int, *, admission: bool = True
) -> Measured:
    """The run as virtual time has it; clients leave at their deadline."""
    settings = AdmissionSettings(pools={pool.name: pool.entered() for pool in pools})

    def router(fleet: Fleet) -> Router:
        if admission:
            return AdmittedRouter(fleet, settings)
        return find_router("least-outstanding")(fleet)

    made = [_pool(pool) for pool in pools]
    recorder = Kept(RecorderOptions())
    drive = VirtualDrive(lambda ended: Fleet(made, router, ended), recorder)
    began_at = time.perf_counter()
    drive.open_loop(workload.requests(seed))
    took_s = time.perf_counter() - began_at
    result = recorder.result(Run(source="simulation"), duration_s=workload.duration_s)
    return Measured(result, recorder.all, {"requests_per_s": len(recorder.all) / took_s})


def _pool(pool: EnginePool) -> Pool:
    profile = find_profile(pool.profile)
    config = PoolConfig(
        engine=profile.engine_config(max_model_len=MAX_MODEL_LEN),
        name=pool.name,
        replicas=pool.replicas,
        max_input_tokens=pool.max_input_tokens,
        max_output_tokens=pool.max_output_tokens,
    )
    return Pool(config, profile.step_model())
