"""A fleet registry and leader-elected, supervised background workers for asyncio.

Nothing is imported here, so that a provider package can import the contracts alone. Start from
`drakkar.worker.Worker` and `drakkar.settings.load_settings`.
"""
